use crate::{check, name, owned_text, Comm, Result};
use std::any::Any;
use std::ffi::c_void;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

/// State of a run after a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    pub step: i64,
    pub steps: i64,
    pub loss: f64,
    /// None when this step was not evaluated.
    pub heldout_loss: Option<f64>,
    pub grad_norm: f64,
    pub lr: f64,
    pub tokens_per_second: f64,
}

/// Lays `patch` over `config`, both JSON texts: objects are merged, null removes (RFC 7396).
pub fn merge_config(config: &str, patch: &str) -> Result<String> {
    let (config, patch) = (name(config)?, name(patch)?);
    // SAFETY: the texts live during the call.
    owned_text(|out| unsafe { ds_sys::ds_config_merge(config.as_ptr(), patch.as_ptr(), out) })
}

struct Watch<'f> {
    each: &'f mut dyn FnMut(&Progress) -> bool,
    panic: Option<Box<dyn Any + Send>>,
}

unsafe extern "C" fn call_each(progress: *const ds_sys::ds_run_progress, user_data: *mut c_void) -> ds_sys::ds_status {
    let watch = &mut *user_data.cast::<Watch<'_>>();
    let p = &*progress;
    let now = Progress {
        step: p.step,
        steps: p.steps,
        loss: p.loss,
        heldout_loss: if p.heldout_loss.is_nan() { None } else { Some(p.heldout_loss) },
        grad_norm: p.grad_norm,
        lr: p.lr,
        tokens_per_second: p.tokens_per_second,
    };
    match catch_unwind(AssertUnwindSafe(|| (watch.each)(&now))) {
        Ok(true) => ds_sys::DS_OK,
        Ok(false) => ds_sys::DS_ERROR_USER,
        Err(panic) => {
            watch.panic = Some(panic);
            ds_sys::DS_ERROR_USER
        }
    }
}

/// Trains as `libds train` does, without output. `each` sees every step on rank 0; false stops the run after a checkpoint,
/// and the call ends with [`crate::Status::User`]. A panic of `each` does so, too, and goes on afterwards. Collective.
pub fn train(comm: Option<&Comm>, config: &str, each: &mut dyn FnMut(&Progress) -> bool) -> Result<()> {
    let config = name(config)?;
    let mut watch = Watch { each, panic: None };
    let comm = comm.map_or(std::ptr::null_mut(), Comm::raw);
    // SAFETY: the callback runs inside the call only, on this thread, and watch lives as long.
    let status = unsafe {
        let user_data: *mut c_void = std::ptr::addr_of_mut!(watch).cast();
        ds_sys::ds_run_train(comm, config.as_ptr(), std::ptr::null(), 2, None, Some(call_each), std::ptr::null(), user_data)
    };
    if let Some(panic) = watch.panic.take() {
        resume_unwind(panic);
    }
    check(status)
}
