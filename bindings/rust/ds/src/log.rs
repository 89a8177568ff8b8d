use crate::error::{contained, copied};
use crate::{check, Result};
use std::ffi::c_void;
use std::os::raw::c_char;
use std::sync::{Arc, Mutex};

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Debug,
    Info,
    Warning,
    Error,
}

type Sink = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;
static SINK: Mutex<Option<Sink>> = Mutex::new(None);

unsafe extern "C" fn call_log(level: ds_sys::ds_log_level, line: *const c_char, _user_data: *mut c_void) {
    let sink = SINK.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
    let level = match level {
        ds_sys::DS_LOG_LEVEL_DEBUG => LogLevel::Debug,
        ds_sys::DS_LOG_LEVEL_INFO => LogLevel::Info,
        ds_sys::DS_LOG_LEVEL_WARNING => LogLevel::Warning,
        _ => LogLevel::Error,
    };
    if let Some(sink) = sink {
        contained(|| {
            sink(level, &copied(line));
            Ok(())
        });
    }
}

/// Sends the log lines of the process to `sink`, on the thread that is inside a call of libds. A panic in `sink`
/// resumes after the call that the line belongs to or, if that call frees a handle, after the next call of the thread.
pub fn set_log(sink: impl Fn(LogLevel, &str) + Send + Sync + 'static) -> Result<()> {
    *SINK.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(Arc::new(sink));
    // SAFETY: the function exists as long as the process.
    unsafe { check(ds_sys::ds_log_set_fn(Some(call_log), std::ptr::null_mut())) }
}

/// Restores the default: warnings and errors go to stderr.
pub fn reset_log() -> Result<()> {
    // SAFETY: no function is given.
    unsafe { check(ds_sys::ds_log_set_fn(None, std::ptr::null_mut()))? };
    *SINK.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    Ok(())
}
