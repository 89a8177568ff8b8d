use std::ffi::{CStr, CString};
use std::fmt;
use std::os::raw::c_char;

/// What a failed call asks of the caller.
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

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub status: Status,
    /// One line that names the argument and both values.
    pub message: String,
    /// The configuration key that it is about, dotted.
    pub key: Option<String>,
    /// The parameter or tensor that it is about.
    pub tensor: Option<String>,
    /// The rank that it is about.
    pub rank: Option<i32>,
}

pub type Result<T> = std::result::Result<T, Error>;

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

/// # Safety
/// `text` is NULL or a C string that lives during the call.
pub(crate) unsafe fn copied(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    CStr::from_ptr(text).to_string_lossy().into_owned()
}

pub(crate) fn check(status: ds_sys::ds_status) -> Result<()> {
    if status == ds_sys::DS_OK {
        return Ok(());
    }
    let (mut key, mut tensor, mut rank) = (std::ptr::null(), std::ptr::null(), -1);
    // SAFETY: the texts live until this thread's next failing call.
    let (message, key, tensor) = unsafe {
        ds_sys::ds_last_error_details(&mut key, &mut tensor, &mut rank);
        (copied(ds_sys::ds_last_error_message()), copied(key), copied(tensor))
    };
    let some = |text: String| if text.is_empty() { None } else { Some(text) };
    let rank = if rank < 0 { None } else { Some(rank) };
    Err(Error { status: Status::of(status), message, key: some(key), tensor: some(tensor), rank })
}

/// The text that `call` makes.
pub(crate) fn owned_text(call: impl FnOnce(*mut *mut c_char) -> ds_sys::ds_status) -> Result<String> {
    let mut text = std::ptr::null_mut();
    check(call(&mut text))?;
    // SAFETY: the call has made the text; it ends here.
    unsafe {
        let out = copied(text);
        ds_sys::ds_text_destroy(text);
        Ok(out)
    }
}

/// A C string of `text`.
pub(crate) fn name(text: &str) -> Result<CString> {
    CString::new(text).map_err(|e| Error::argument(format!("a text must have no NUL, got one at {}", e.nul_position())))
}
