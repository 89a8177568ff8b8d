use crate::collective::Loan;
use crate::tensor::{dtype_name, Element};
use crate::{check, name, owned_text, Error, Format, Result};
use std::any::TypeId;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

pub(crate) struct Handle {
    raw: *mut ds_sys::ds_comm,
    // The loans of started collectives whose Work was dropped before they had ended.
    loans: Mutex<Vec<Loan>>,
}

// SAFETY: the calls through a shared handle are [threadsafe] in ds.h; all others go through Comm, which belongs to one
// thread.
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Handle {
    fn loans(&self) -> MutexGuard<'_, Vec<Loan>> {
        self.loans.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Keeps the buffers of a collective until it has ended.
    pub(crate) fn keep(&self, loan: Loan) {
        self.loans().push(loan);
    }

    /// Frees the loans that have ended.
    pub(crate) fn sweep(&self) {
        self.loans().retain(|loan| !loan.ended());
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle. Leaving the group ends the started collectives; the loans are waited for
        // after that.
        unsafe { ds_sys::ds_comm_destroy(self.raw) }
    }
}

/// A group of ranks. One thread at a time uses it and its engines; it may move to another thread.
pub struct Comm {
    handle: Arc<Handle>,
    _one_thread: PhantomData<Cell<()>>,
}

/// Options for joining a group.
#[derive(Clone, Copy, Debug)]
pub struct CommOptions {
    pub rank: i32,
    pub size: i32,
    /// Milliseconds without progress after which a peer counts as dead.
    pub timeout_ms: i64,
    /// Milliseconds to wait until all ranks have joined.
    pub join_ms: i64,
}

impl Default for CommOptions {
    fn default() -> Self {
        CommOptions { rank: 0, size: 1, timeout_ms: 300_000, join_ms: 60_000 }
    }
}

impl Comm {
    /// Joins the group that `url` names: "self", "threads://NAME", "shm://NAME", "env" or another url of ds.h.
    /// Collective.
    pub fn join(url: &str, options: &CommOptions) -> Result<Comm> {
        let url = name(url)?;
        // SAFETY: the options are filled by libds first, and all pointers are valid during the calls.
        unsafe {
            let mut raw: ds_sys::ds_comm_options = std::mem::zeroed();
            check(ds_sys::ds_comm_options_init(&mut raw, std::mem::size_of_val(&raw)))?;
            raw.rank = options.rank;
            raw.size = options.size;
            raw.timeout_ms = options.timeout_ms;
            raw.join_ms = options.join_ms;
            let mut out = std::ptr::null_mut();
            check(ds_sys::ds_comm_create(url.as_ptr(), &raw, &mut out))?;
            Ok(Comm::own(out))
        }
    }

    pub(crate) fn own(raw: *mut ds_sys::ds_comm) -> Comm {
        Comm { handle: Arc::new(Handle { raw, loans: Mutex::new(Vec::new()) }), _one_thread: PhantomData }
    }

    pub(crate) fn raw(&self) -> *mut ds_sys::ds_comm {
        self.handle.raw
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// This rank, from 0.
    pub fn rank(&self) -> usize {
        // SAFETY: the handle lives.
        unsafe { ds_sys::ds_comm_rank(self.raw()) as usize }
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        // SAFETY: the handle lives.
        unsafe { ds_sys::ds_comm_size(self.raw()) as usize }
    }

    /// Sums `data` over all ranks, in place, with the same bits on any transport. Collective. The sum of 16-bit floats
    /// is f32 and cannot be stored in `data`: use [`crate::Collective::all_reduce`] for these types, and for operations
    /// other than the sum.
    pub fn all_reduce<T: Element>(&self, data: &mut [T]) -> Result<()> {
        if TypeId::of::<T>() != TypeId::of::<T::Sum>() {
            let got = dtype_name(T::DTYPE);
            return Err(Error::argument(format!("all_reduce in place must have f32, f64 or integers, got {got}")));
        }
        // SAFETY: in and out are the same memory of data.len() elements, which ds.h allows for these types.
        unsafe {
            let at = data.as_mut_ptr().cast();
            check(ds_sys::ds_comm_all_reduce(self.raw(), at, data.len(), T::DTYPE, at))
        }
    }

    /// Sums `data` over all ranks; rank r gets part r of the sum. The length must be a multiple of the number of ranks.
    /// Collective.
    pub fn reduce_scatter<T: Element>(&self, data: &[T]) -> Result<Vec<T::Sum>> {
        let count = self.part_of(data.len())?;
        let mut out = vec![T::Sum::default(); count];
        // SAFETY: data has size * count elements, out has count.
        unsafe {
            let at = out.as_mut_ptr().cast();
            check(ds_sys::ds_comm_reduce_scatter(self.raw(), data.as_ptr().cast(), count, T::DTYPE, at))?;
        }
        Ok(out)
    }

    fn part_of(&self, count: usize) -> Result<usize> {
        if count % self.size() != 0 {
            return Err(Error::argument(format!("data must have a multiple of {} elements, got {count}", self.size())));
        }
        Ok(count / self.size())
    }

    /// Returns the `data` of all ranks, in the order of ranks. The length must be the same on all ranks. Collective.
    pub fn all_gather<T: Element>(&self, data: &[T]) -> Result<Vec<T>> {
        let mut out = vec![T::default(); data.len() * self.size()];
        // SAFETY: out has in_size * size bytes.
        unsafe {
            let bytes = std::mem::size_of_val(data);
            check(ds_sys::ds_comm_all_gather(self.raw(), data.as_ptr().cast(), bytes, out.as_mut_ptr().cast()))?;
        }
        Ok(out)
    }

    /// Sends block `b` of `data` to rank `b`; block `r` of the result comes from rank `r`. Collective.
    pub fn all_to_all<T: Element>(&self, data: &[T]) -> Result<Vec<T>> {
        let block = self.part_of(data.len())? * std::mem::size_of::<T>();
        let mut out = vec![T::default(); data.len()];
        // SAFETY: both have size blocks of block_size bytes.
        unsafe {
            check(ds_sys::ds_comm_all_to_all(self.raw(), data.as_ptr().cast(), block, out.as_mut_ptr().cast()))?;
        }
        Ok(out)
    }

    /// Copies the data of rank `root` to all ranks. The length must be the same on all ranks. Collective.
    pub fn broadcast<T: Element>(&self, data: &mut [T], root: usize) -> Result<()> {
        // SAFETY: data lives during the call.
        unsafe {
            let bytes = std::mem::size_of_val(data);
            check(ds_sys::ds_comm_broadcast(self.raw(), data.as_mut_ptr().cast(), bytes, rank_number(root)?))
        }
    }

    /// Sends to rank `to`, which must receive the same number of elements. Returns when they have arrived.
    pub fn send<T: Element>(&self, data: &[T], to: usize) -> Result<()> {
        // SAFETY: data lives during the call.
        unsafe {
            check(ds_sys::ds_comm_send(self.raw(), data.as_ptr().cast(), std::mem::size_of_val(data), rank_number(to)?))
        }
    }

    /// Receives the elements that rank `from` sends.
    pub fn receive<T: Element>(&self, data: &mut [T], from: usize) -> Result<()> {
        // SAFETY: data lives during the call.
        unsafe {
            let bytes = std::mem::size_of_val(data);
            check(ds_sys::ds_comm_receive(self.raw(), data.as_mut_ptr().cast(), bytes, rank_number(from)?))
        }
    }

    /// Returns when every rank has called it. Collective.
    pub fn barrier(&self) -> Result<()> {
        // SAFETY: the handle lives.
        unsafe { check(ds_sys::ds_comm_barrier(self.raw())) }
    }

    /// Creates a group of all ranks with the same color, ordered by key, then by rank. Returns None on a rank without a
    /// color. Collective.
    pub fn split(&self, color: Option<i32>, key: i32) -> Result<Option<Comm>> {
        let mut out = std::ptr::null_mut();
        // SAFETY: out is valid during the call.
        unsafe { check(ds_sys::ds_comm_split(self.raw(), color.unwrap_or(-1), key, &mut out))? };
        Ok(if out.is_null() { None } else { Some(Comm::own(out)) })
    }

    /// Returns an object that can end the group from any thread.
    pub fn aborter(&self) -> Aborter {
        Aborter { handle: Arc::downgrade(&self.handle) }
    }

    /// Times the collectives of this group from now on. Collective.
    pub fn log_start(&self) -> Result<()> {
        // SAFETY: the handle lives.
        unsafe { check(ds_sys::ds_comm_log_start(self.raw())) }
    }

    /// Returns the cost of this rank's collectives since [`Comm::log_start`]. Collective.
    pub fn log(&self, format: Format) -> Result<String> {
        // SAFETY: the handle lives.
        owned_text(|out| unsafe { ds_sys::ds_comm_log(self.raw(), format.raw(), out) })
    }

    /// Returns the last operations of this rank, oldest first.
    pub fn flight_record(&self, format: Format) -> Result<String> {
        // SAFETY: the handle lives.
        owned_text(|out| unsafe { ds_sys::ds_comm_flight_record(self.raw(), format.raw(), out) })
    }
}

fn rank_number(rank: usize) -> Result<i32> {
    i32::try_from(rank).map_err(|_| Error::argument(format!("a rank must be at most {}, got {rank}", i32::MAX)))
}

/// A handle by which any thread can end a group.
#[derive(Clone)]
pub struct Aborter {
    handle: Weak<Handle>,
}

impl Aborter {
    /// Ends the running collective and every later one, on all ranks, with this reason; does nothing if the
    /// communicator was dropped.
    pub fn abort(&self, reason: &str) -> Result<()> {
        let reason = name(reason)?;
        match self.handle.upgrade() {
            // SAFETY: [threadsafe], and the handle lives as long as this reference.
            Some(handle) => unsafe { check(ds_sys::ds_comm_abort(handle.raw, reason.as_ptr())) },
            None => Ok(()),
        }
    }
}
