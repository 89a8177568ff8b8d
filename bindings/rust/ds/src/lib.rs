//! libds from Rust: engines, graphs, collectives and checkpoints of the C header `ds.h`, with owned handles, `Result` and
//! lifetimes. `docs/start/rust.md` is the guide.
//!
//! Threads. A [`Comm`] and its engines count as one for libds: a communicator may move to another thread, but it is not
//! shared, and an [`Engine`] stays on the thread of the communicator that it borrows. [`Comm::aborter`] gives what any
//! thread may use.
//!
//! Errors. Every call that can fail returns [`Result`]; the [`Error`] has the status, the message, and the configuration key,
//! tensor or rank that it is about. A panic in a callback goes on after libds has returned.

mod comm;
mod engine;
mod error;
mod graph;
pub mod ops;
mod run;
mod tensor;

pub use comm::{Aborter, Comm, CommOptions, ReduceOp};
pub use engine::{Engine, EngineOptions, Lease, StepResult};
pub use error::{Error, Result, Status};
pub use graph::{Graph, Plan, Value};
pub use run::{merge_config, train, Progress};
pub use tensor::{Element, Tensor, View};

use error::{check, name, owned_text};

/// Version of libds, for example "0.1.0".
pub fn version() -> &'static str {
    // SAFETY: the text is ASCII and lives as long as the process.
    unsafe { std::ffi::CStr::from_ptr(ds_sys::ds_version()) }.to_str().unwrap_or("")
}

/// How a report comes out: text to read, or JSON whose members `docs/reference/reports.md` names.
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

/// Facts of this machine and build.
pub fn env_report(format: Format) -> Result<String> {
    // SAFETY: out_text is valid for the call.
    owned_text(|out| unsafe { ds_sys::ds_env_report(format.raw(), out) })
}

// The guide's programs are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/start/rust.md")]
struct Guide;
