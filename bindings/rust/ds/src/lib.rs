//! libds from Rust: engines, graphs, collectives and checkpoints of the C header `ds.h`, with owned handles, `Result` and
//! lifetimes. `docs/start/rust.md` is the guide.
//!
//! Threads. A [`Comm`] and its engines count as one handle: a communicator may move to another thread, but is not shared. An
//! [`Engine`] that borrows its communicator stays on the communicator's thread; one that owns it, or has none, may move.
//! [`Comm::aborter`] returns an object that any thread may use.
//!
//! Errors. Every call that can fail returns [`Result`]; the [`Error`] has the status, the message, and the
//! configuration key, tensor or rank that the message is about. A panic in a callback resumes after libds has returned.

mod collective;
mod comm;
mod custom;
mod delegate;
pub mod dlpack;
mod engine;
mod error;
mod graph;
mod log;
pub mod ops;
mod run;
mod stream;
mod tensor;
mod transport;

pub use collective::{Collective, ReduceOp, Work};
pub use comm::{Aborter, Comm, CommOptions};
pub use custom::{CustomOp, CustomOutput, ViewMut};
pub use delegate::Lease;
pub use engine::{Elements, Engine, EngineOptions, Group, Init, Part, StepResult, Update};
pub use error::{CallbackResult, Error, Result, Status};
pub use graph::{op_schema, Graph, Plan, Value};
pub use log::{reset_log, set_log, LogLevel};
pub use run::{audit, checkpoint_info, communicator, convert_checkpoint, describe_config, generate, merge_config, profile,
              verify};
pub use run::{Batch, Output, Outcome, Progress, Run};
pub use stream::{DeviceTensor, Download, Stream};
pub use tensor::{Bf16, Element, Tensor, View, F16};
pub use transport::Transport;

use error::{address, check, name, optional, owned_text, path_text};

/// Returns the version of libds, for example "0.1.0".
pub fn version() -> &'static str {
    // SAFETY: the text is ASCII and lives as long as the process.
    unsafe { std::ffi::CStr::from_ptr(ds_sys::ds_version()) }.to_str().unwrap_or("")
}

/// The form of a report: text to read, or JSON with the members that `docs/reference/reports.md` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

impl Format {
    fn raw(self) -> ds_sys::ds_format {
        match self {
            Format::Text => ds_sys::DS_FORMAT_TEXT,
            Format::Json => ds_sys::DS_FORMAT_JSON,
        }
    }
}

/// Returns facts about this machine and build.
pub fn env_report(format: Format) -> Result<String> {
    // SAFETY: out_text is valid for the call.
    owned_text(|out| unsafe { ds_sys::ds_env_report(format.raw(), out) })
}

// The programs of the guide are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/start/rust.md")]
struct Guide;
