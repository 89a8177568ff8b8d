use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::fmt;
use std::os::raw::c_char;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

/// The kind of an error, which tells the caller how to react.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    InvalidArgument,
    Config,
    NotFound,
    State,
    Unsupported,
    OutOfMemory,
    Io,
    Corrupt,
    Comm,
    Numeric,
    Poisoned,
    User,
    Internal,
}

impl Status {
    fn of(raw: ds_sys::ds_status) -> Status {
        match raw {
            ds_sys::DS_ERROR_INVALID_ARGUMENT => Status::InvalidArgument,
            ds_sys::DS_ERROR_CONFIG => Status::Config,
            ds_sys::DS_ERROR_NOT_FOUND => Status::NotFound,
            ds_sys::DS_ERROR_STATE => Status::State,
            ds_sys::DS_ERROR_UNSUPPORTED => Status::Unsupported,
            ds_sys::DS_ERROR_OUT_OF_MEMORY => Status::OutOfMemory,
            ds_sys::DS_ERROR_IO => Status::Io,
            ds_sys::DS_ERROR_CORRUPT => Status::Corrupt,
            ds_sys::DS_ERROR_COMM => Status::Comm,
            ds_sys::DS_ERROR_NUMERIC => Status::Numeric,
            ds_sys::DS_ERROR_POISONED => Status::Poisoned,
            ds_sys::DS_ERROR_USER => Status::User,
            _ => Status::Internal,
        }
    }
}

/// The reason of a failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub status: Status,
    /// One line for people.
    pub message: String,
    /// The configuration key that the message is about, dotted.
    pub key: Option<String>,
    /// The parameter or tensor that the message is about.
    pub tensor: Option<String>,
    /// The rank that the message is about.
    pub rank: Option<i32>,
}

pub type Result<T> = std::result::Result<T, Error>;

/// The result of a closure that libds calls. An error ends the surrounding call with [`Status::User`]; the text of the
/// error follows the message of libds.
pub type CallbackResult = std::result::Result<(), Box<dyn std::error::Error + Send + Sync>>;

impl Error {
    pub(crate) fn argument(message: String) -> Error {
        Error { status: Status::InvalidArgument, message, key: None, tensor: None, rank: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

// How a closure ended, kept until the surrounding call of libds has returned.
enum Escaped {
    Panic(Box<dyn Any + Send>),
    Error(String),
}

thread_local! {
    static ESCAPED: RefCell<Option<Escaped>> = const { RefCell::new(None) };
}

/// Runs the body of a callback. A panic does not cross libds: the callback returns `DS_ERROR_USER`, and [`check`]
/// resumes the panic after the surrounding call. An error becomes part of that call's error.
pub(crate) fn contained(body: impl FnOnce() -> CallbackResult) -> ds_sys::ds_status {
    let escaped = match catch_unwind(AssertUnwindSafe(|| body().map_err(|error| error.to_string()))) {
        Ok(Ok(())) => return ds_sys::DS_OK,
        Ok(Err(text)) => Escaped::Error(text),
        Err(panic) => Escaped::Panic(panic),
    };
    // If several callbacks have failed, the first one counts.
    let _ = ESCAPED.try_with(|slot| {
        slot.borrow_mut().get_or_insert(escaped);
    });
    ds_sys::DS_ERROR_USER
}

/// # Safety
/// `text` is NULL or a C string that lives during the call.
pub(crate) unsafe fn copied(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    CStr::from_ptr(text).to_string_lossy().into_owned()
}

pub(crate) fn check(status: ds_sys::ds_status) -> Result<()> {
    let escaped = ESCAPED.try_with(|slot| slot.borrow_mut().take()).unwrap_or(None);
    if let Some(Escaped::Panic(panic)) = escaped {
        resume_unwind(panic);
    }
    if status == ds_sys::DS_OK {
        return Ok(());
    }
    let (mut key, mut tensor, mut rank) = (std::ptr::null(), std::ptr::null(), -1);
    // SAFETY: the texts live until this thread's next failing call.
    let (mut message, key, tensor) = unsafe {
        ds_sys::ds_last_error_details(&mut key, &mut tensor, &mut rank);
        (copied(ds_sys::ds_last_error_message()), copied(key), copied(tensor))
    };
    if let Some(Escaped::Error(text)) = escaped {
        message = format!("{message}: {text}");
    }
    let some = |text: String| if text.is_empty() { None } else { Some(text) };
    let rank = if rank < 0 { None } else { Some(rank) };
    Err(Error { status: Status::of(status), message, key: some(key), tensor: some(tensor), rank })
}

/// Returns the text that `call` creates.
pub(crate) fn owned_text(call: impl FnOnce(*mut *mut c_char) -> ds_sys::ds_status) -> Result<String> {
    let mut text = std::ptr::null_mut();
    check(call(&mut text))?;
    // SAFETY: the call has made the text, which is freed here.
    unsafe {
        let out = copied(text);
        ds_sys::ds_text_destroy(text);
        Ok(out)
    }
}

/// Returns `text` as a C string.
pub(crate) fn name(text: &str) -> Result<CString> {
    CString::new(text).map_err(|e| Error::argument(format!("a text must not contain a NUL, got one at {}", e.nul_position())))
}

/// Returns an optional text as a C string; [`address`] returns its address.
pub(crate) fn optional(text: Option<&str>) -> Result<Option<CString>> {
    text.map(name).transpose()
}

/// Returns the address of an optional text, NULL for None. The text must live as long as the address is used.
pub(crate) fn address(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(std::ptr::null(), |t| t.as_ptr())
}

/// Returns a path as a C string.
pub(crate) fn path_text(path: &std::path::Path) -> Result<CString> {
    let text = path.to_str().ok_or_else(|| Error::argument(format!("a path must be UTF-8, got '{}'", path.display())))?;
    name(text)
}
