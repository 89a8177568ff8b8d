use crate::error::{check, contained, copied};
use crate::{CallbackResult, Comm, Error, Result};
use std::ffi::c_void;
use std::os::raw::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// The collectives of another library, over which [`Comm::over`] creates a group.
///
/// Each call must return only when the bytes of this rank have been sent and received. All ranks make the same calls in
/// the same order, except that a send and a receive involve two ranks only. The calls come on the thread that is inside
/// a call of the group, of a group split from it, or of an engine on either, and must not use any of these. The
/// transport needs its own time-outs, because libds cannot see which rank it waits for. An error or a panic ends the
/// group.
pub trait Transport: Send + Sync + 'static {
    /// Sends `outgoing[r]` to rank r and fills `incoming[r]` with the bytes that rank r sends. The slices of this rank
    /// are empty, and so are slices with nothing to send or receive.
    fn all_to_all(&self, outgoing: &[&[u8]], incoming: &mut [&mut [u8]]) -> CallbackResult;

    /// Returns whether [`Transport::send`] and [`Transport::receive`] are implemented. The result must be the same on
    /// all ranks. Without them, sends, receives and splits of the group fail with [`crate::Status::Unsupported`].
    fn has_pairs(&self) -> bool {
        false
    }

    /// Sends to rank `to`, which receives the same number of bytes.
    fn send(&self, data: &[u8], to: usize) -> CallbackResult {
        let _ = (data, to);
        Err("this transport has no send".into())
    }

    /// Receives the bytes that rank `from` sends to this rank.
    fn receive(&self, data: &mut [u8], from: usize) -> CallbackResult {
        let _ = (data, from);
        Err("this transport has no receive".into())
    }

    /// Ends the running call and every later one, on all ranks if possible. It may be called on any thread, even during
    /// another call.
    fn abort(&self, reason: &str) {
        let _ = reason;
    }
}

// The object that user_data points to. Each call of libds passes lists of `size` entries.
struct Called {
    transport: Box<dyn Transport>,
    size: usize,
}

/// # Safety
/// NULL, or `bytes` bytes that nobody writes during the call.
unsafe fn bytes_at<'a>(at: *const c_void, bytes: usize) -> &'a [u8] {
    if bytes == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(at.cast(), bytes)
    }
}

/// # Safety
/// NULL, or `bytes` bytes that nobody else uses during the call.
unsafe fn bytes_at_mut<'a>(at: *mut c_void, bytes: usize) -> &'a mut [u8] {
    if bytes == 0 {
        &mut []
    } else {
        std::slice::from_raw_parts_mut(at.cast(), bytes)
    }
}

unsafe extern "C" fn call_all_to_all(
    ins: *const *const c_void,
    in_sizes: *const usize,
    outs: *const *mut c_void,
    out_sizes: *const usize,
    user_data: *mut c_void,
) -> ds_sys::ds_status {
    contained(|| {
        let called = &*user_data.cast::<Called>();
        let ranks = 0..called.size;
        let outgoing: Vec<&[u8]> = ranks.clone().map(|r| bytes_at(*ins.add(r), *in_sizes.add(r))).collect();
        let mut incoming: Vec<&mut [u8]> = ranks.map(|r| bytes_at_mut(*outs.add(r), *out_sizes.add(r))).collect();
        called.transport.all_to_all(&outgoing, &mut incoming)
    })
}

unsafe extern "C" fn call_send(data: *const c_void, bytes: usize, to: i32, user_data: *mut c_void) -> ds_sys::ds_status {
    contained(|| (*user_data.cast::<Called>()).transport.send(bytes_at(data, bytes), to as usize))
}

unsafe extern "C" fn call_receive(data: *mut c_void, bytes: usize, from: i32, user_data: *mut c_void) -> ds_sys::ds_status {
    contained(|| (*user_data.cast::<Called>()).transport.receive(bytes_at_mut(data, bytes), from as usize))
}

// No call of libds reports a failure of the following two functions, so they swallow panics.
unsafe extern "C" fn call_abort(reason: *const c_char, user_data: *mut c_void) {
    let called = &*user_data.cast::<Called>();
    let _ = catch_unwind(AssertUnwindSafe(|| called.transport.abort(&copied(reason))));
}

unsafe extern "C" fn end(user_data: *mut c_void) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(user_data.cast::<Called>()))));
}

impl Comm {
    /// Creates a group of `size` ranks whose bytes go through the collectives of another library, which keeps its own
    /// process groups. Sums have the same bits as over every url. The transport lives until the last group and engine
    /// that use it have ended. Collective.
    pub fn over(transport: impl Transport, rank: usize, size: usize) -> Result<Comm> {
        let number = |name: &str, value: usize| {
            i32::try_from(value).map_err(|_| Error::argument(format!("{name} must be at most {}, got {value}", i32::MAX)))
        };
        let (rank, ranks) = (number("rank", rank)?, number("size", size)?);
        let pairs = transport.has_pairs();
        let called = Box::into_raw(Box::new(Called { transport: Box::new(transport), size }));
        let callbacks = ds_sys::ds_comm_callbacks {
            struct_size: std::mem::size_of::<ds_sys::ds_comm_callbacks>(),
            all_gather: None,
            all_to_all: Some(call_all_to_all),
            send: if pairs { Some(call_send) } else { None },
            receive: if pairs { Some(call_receive) } else { None },
            abort: Some(call_abort),
            destroy: Some(end),
            user_data: called.cast(),
        };
        // SAFETY: the options are filled by libds first, and the callbacks are copied. libds frees the transport,
        // unless it refuses the call.
        unsafe {
            let mut options: ds_sys::ds_comm_options = std::mem::zeroed();
            let mut out = std::ptr::null_mut();
            let mut status = ds_sys::ds_comm_options_init(&mut options, std::mem::size_of_val(&options));
            if status == ds_sys::DS_OK {
                options.rank = rank;
                options.size = ranks;
                status = ds_sys::ds_comm_create_from_callbacks(&callbacks, &options, &mut out);
            }
            // Dropped only after the error has been read, since dropping the program's value may call libds, too.
            let refused = if status == ds_sys::DS_OK { None } else { Some(Box::from_raw(called)) };
            let result = check(status);
            drop(refused);
            result.map(|()| Comm::own(out))
        }
    }
}
