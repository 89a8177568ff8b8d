use crate::comm::Handle;
use crate::tensor::Element;
use crate::{check, Comm, Error, Result};
use std::any::Any;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};

/// The operation that combines the elements of several ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceOp {
    Sum,
    /// The sum divided by the number of ranks; for floating types.
    Mean,
    /// The maximum. Like the minimum, it is NaN if any rank has a NaN.
    Max,
    Min,
}

impl ReduceOp {
    fn raw(self) -> ds_sys::ds_reduce_op {
        match self {
            ReduceOp::Sum => ds_sys::DS_REDUCE_OP_SUM,
            ReduceOp::Mean => ds_sys::DS_REDUCE_OP_MEAN,
            ReduceOp::Max => ds_sys::DS_REDUCE_OP_MAX,
            ReduceOp::Min => ds_sys::DS_REDUCE_OP_MIN,
        }
    }
}

/// A collective as a value: an operation over a list of buffers that it owns, or over blocks of unequal size. [`Comm::run`]
/// runs it, [`Comm::start`] starts it. All ranks must pass the same operation, root and buffer sizes.
///
/// A list of buffers is one collective: it is faster than separate calls if the buffers are small, and its results have
/// the same bits.
#[must_use = "Comm::run makes a collective, Comm::start starts it"]
pub struct Collective<T: Element, O: Element = T> {
    op: ds_sys::ds_comm_op,
    reduce: ReduceOp,
    root: usize,
    buffers: Vec<Vec<T>>,
    counts: Option<Vec<usize>>,
    blocks: Option<Vec<usize>>,
    out_blocks: Option<Vec<usize>>,
    _out: PhantomData<O>,
}

impl<T: Element, O: Element> Collective<T, O> {
    fn new(op: ds_sys::ds_comm_op, buffers: Vec<Vec<T>>) -> Self {
        let (counts, blocks, out_blocks) = (None, None, None);
        Collective { op, reduce: ReduceOp::Sum, root: 0, buffers, counts, blocks, out_blocks, _out: PhantomData }
    }
}

impl<T: Element> Collective<T, T::Sum> {
    /// A collective in which every rank gets the reduced elements.
    pub fn all_reduce(buffers: Vec<Vec<T>>, reduce: ReduceOp) -> Self {
        Collective { reduce, ..Collective::new(ds_sys::DS_COMM_OP_ALL_REDUCE, buffers) }
    }

    /// A collective in which rank r gets part r of the reduced elements. The length of each buffer must be a multiple
    /// of the number of ranks.
    pub fn reduce_scatter(buffers: Vec<Vec<T>>, reduce: ReduceOp) -> Self {
        Collective { reduce, ..Collective::new(ds_sys::DS_COMM_OP_REDUCE_SCATTER, buffers) }
    }

    /// A reduce_scatter of one buffer in which blocks\[r\] elements belong to rank r.
    pub fn reduce_scatter_blocks(buffer: Vec<T>, blocks: Vec<usize>, reduce: ReduceOp) -> Self {
        let blocks = Some(blocks);
        Collective { reduce, blocks, ..Collective::new(ds_sys::DS_COMM_OP_REDUCE_SCATTER, vec![buffer]) }
    }

    /// A collective in which only the root gets the reduced elements; other ranks get empty buffers.
    pub fn reduce(buffers: Vec<Vec<T>>, reduce: ReduceOp, root: usize) -> Self {
        Collective { reduce, root, ..Collective::new(ds_sys::DS_COMM_OP_REDUCE, buffers) }
    }
}

impl<T: Element> Collective<T> {
    /// A collective in which every rank gets the buffers of all ranks, in the order of ranks.
    pub fn all_gather(buffers: Vec<Vec<T>>) -> Self {
        Collective::new(ds_sys::DS_COMM_OP_ALL_GATHER, buffers)
    }

    /// An all_gather of one buffer, which has blocks\[r\] elements on rank r.
    pub fn all_gather_blocks(buffer: Vec<T>, blocks: Vec<usize>) -> Self {
        Collective { blocks: Some(blocks), ..Collective::new(ds_sys::DS_COMM_OP_ALL_GATHER, vec![buffer]) }
    }

    /// A collective in which block b of each buffer goes to rank b, and block r of the result comes from rank r.
    pub fn all_to_all(buffers: Vec<Vec<T>>) -> Self {
        Collective::new(ds_sys::DS_COMM_OP_ALL_TO_ALL, buffers)
    }

    /// An all_to_all of one buffer: blocks\[b\] elements go to rank b, out_blocks\[r\] come from rank r.
    pub fn all_to_all_blocks(buffer: Vec<T>, blocks: Vec<usize>, out_blocks: Vec<usize>) -> Self {
        let (blocks, out_blocks) = (Some(blocks), Some(out_blocks));
        Collective { blocks, out_blocks, ..Collective::new(ds_sys::DS_COMM_OP_ALL_TO_ALL, vec![buffer]) }
    }

    /// A collective in which every rank gets the root's buffers. The buffers of other ranks must have the same lengths.
    pub fn broadcast(buffers: Vec<Vec<T>>, root: usize) -> Self {
        Collective { root, ..Collective::new(ds_sys::DS_COMM_OP_BROADCAST, buffers) }
    }

    /// A collective in which the root gets the buffers of all ranks; other ranks get empty buffers.
    pub fn gather(buffers: Vec<Vec<T>>, root: usize) -> Self {
        Collective { root, ..Collective::new(ds_sys::DS_COMM_OP_GATHER, buffers) }
    }

    /// A collective in which block r of each of the root's buffers goes to rank r. The buffers of other ranks are not
    /// used. counts\[i\] is the number of elements in a block of buffer i.
    pub fn scatter(buffers: Vec<Vec<T>>, counts: Vec<usize>, root: usize) -> Self {
        Collective { root, counts: Some(counts), ..Collective::new(ds_sys::DS_COMM_OP_SCATTER, buffers) }
    }
}

impl Collective<u8> {
    /// A collective without buffers that ends when every rank has started it.
    pub fn barrier() -> Self {
        Collective::new(ds_sys::DS_COMM_OP_BARRIER, Vec::new())
    }
}

// The memory of a collective, which must stay in place until the collective has ended.
struct Buffers<T, O> {
    ins: Vec<Vec<T>>,
    outs: Vec<Vec<O>>,
}

// The sizes in the lists of a call.
struct Sizes {
    counts: Vec<usize>,
    outs: Vec<usize>,
}

fn divided(n: usize, ranks: usize, what: &str) -> Result<usize> {
    if n % ranks != 0 {
        return Err(Error::argument(format!("{what} must have a multiple of {ranks} elements, got {n}")));
    }
    Ok(n / ranks)
}

fn expect(n: usize, expected: usize, what: &str) -> Result<()> {
    if n != expected {
        return Err(Error::argument(format!("{what} must have {expected} elements, got {n}")));
    }
    Ok(())
}

fn total(blocks: &[usize]) -> Result<usize> {
    let sum = blocks.iter().try_fold(0usize, |n, &b| n.checked_add(b));
    sum.ok_or_else(|| Error::argument("blocks have too many elements together, at least 2^64".to_string()))
}

impl<T: Element, O: Element> Collective<T, O> {
    // Checks one buffer in blocks; returns the number of elements of the result.
    fn check_blocks(&self, comm: &Comm, blocks: &[usize]) -> Result<Sizes> {
        let ranks = comm.size();
        for (list, name) in [(Some(blocks), "blocks"), (self.out_blocks.as_deref(), "out_blocks")] {
            if list.map_or(false, |l| l.len() != ranks) {
                let got = list.map_or(0, <[usize]>::len);
                return Err(Error::argument(format!("{name} must be one for each of {ranks} ranks, got {got}")));
            }
        }
        let (own, all, given) = (blocks[comm.rank()], total(blocks)?, self.buffers[0].len());
        let (needed, out) = match self.op {
            ds_sys::DS_COMM_OP_ALL_GATHER => (own, all),
            ds_sys::DS_COMM_OP_REDUCE_SCATTER => (all, own),
            _ => (all, total(self.out_blocks.as_deref().unwrap_or(&[]))?),
        };
        expect(given, needed, "the buffer of these blocks")?;
        Ok(Sizes { counts: Vec::new(), outs: vec![out] })
    }

    // Checks buffers of equal parts; returns the count of each as ds.h counts it, and the numbers of elements of the
    // results.
    fn check_list(&self, comm: &Comm) -> Result<Sizes> {
        let (ranks, at_root) = (comm.size(), comm.rank() == self.root);
        if let Some(counts) = &self.counts {
            if at_root {
                expect(self.buffers.len(), counts.len(), "the list of buffers")?;
                for (buffer, count) in self.buffers.iter().zip(counts) {
                    expect(buffer.len(), count.saturating_mul(ranks), "a buffer of the root")?;
                }
            }
            return Ok(Sizes { counts: counts.clone(), outs: counts.clone() });
        }
        let mut sizes = Sizes { counts: Vec::new(), outs: Vec::new() };
        for n in self.buffers.iter().map(Vec::len) {
            let (count, out) = match self.op {
                ds_sys::DS_COMM_OP_ALL_GATHER => (n, n * ranks),
                ds_sys::DS_COMM_OP_REDUCE_SCATTER => {
                    let part = divided(n, ranks, "a buffer of a reduce_scatter")?;
                    (part, part)
                }
                ds_sys::DS_COMM_OP_ALL_TO_ALL => (divided(n, ranks, "a buffer of an all_to_all")?, n),
                ds_sys::DS_COMM_OP_REDUCE => (n, if at_root { n } else { 0 }),
                ds_sys::DS_COMM_OP_GATHER => (n, if at_root { n * ranks } else { 0 }),
                _ => (n, n),
            };
            sizes.counts.push(count);
            sizes.outs.push(out);
        }
        Ok(sizes)
    }

    // Calls libds with the lists of the call, which it copies; the buffers stay in place.
    fn submit(mut self, comm: &Comm, out_work: *mut *mut ds_sys::ds_work) -> Result<Buffers<T, O>> {
        let sizes = match &self.blocks {
            Some(blocks) => self.check_blocks(comm, blocks)?,
            None => self.check_list(comm)?,
        };
        let root = i32::try_from(self.root).unwrap_or(i32::MAX);
        // Where ds.h allows it, the result replaces the data.
        let in_place = [ds_sys::DS_COMM_OP_ALL_REDUCE, ds_sys::DS_COMM_OP_BROADCAST].contains(&self.op);
        let ins: Box<dyn Any> = Box::new(std::mem::take(&mut self.buffers));
        let mut buffers = match ins.downcast::<Vec<Vec<O>>>() {
            Ok(same) if in_place => Buffers { ins: Vec::new(), outs: *same },
            other => {
                let ins = other.map_or_else(|ins| ins, |ins| ins as Box<dyn Any>);
                let outs = sizes.outs.iter().map(|&n| vec![O::default(); n]).collect();
                Buffers { ins: *ins.downcast::<Vec<Vec<T>>>().expect("the type that it had"), outs }
            }
        };
        let outs: Vec<_> = buffers.outs.iter_mut().map(|b| b.as_mut_ptr().cast::<std::ffi::c_void>()).collect();
        let mut ins: Vec<_> = buffers.ins.iter().map(|b| b.as_ptr().cast::<std::ffi::c_void>()).collect();
        if ins.is_empty() {
            ins = outs.iter().map(|&at| at as *const _).collect();
        }
        // SAFETY: the buffers have the sizes that the call says; its lists live during the call.
        unsafe {
            let mut call: ds_sys::ds_comm_call = std::mem::zeroed();
            check(ds_sys::ds_comm_call_init(&mut call, std::mem::size_of_val(&call)))?;
            call.op = self.op;
            call.dtype = T::DTYPE;
            call.reduce = self.reduce.raw();
            call.root = root;
            call.ins = ins.as_ptr();
            call.outs = outs.as_ptr();
            call.counts = sizes.counts.as_ptr();
            call.buffers_count = outs.len();
            if let Some(blocks) = &self.blocks {
                call.blocks = blocks.as_ptr();
                call.blocks_count = blocks.len();
            }
            call.out_blocks = self.out_blocks.as_ref().map_or(std::ptr::null(), |b| b.as_ptr());
            check(ds_sys::ds_comm_submit(comm.raw(), &call, out_work))?;
        }
        Ok(buffers)
    }
}

impl Comm {
    /// Runs a collective and returns its buffers. Collective.
    pub fn run<T: Element, O: Element>(&self, collective: Collective<T, O>) -> Result<Vec<Vec<O>>> {
        Ok(collective.submit(self, std::ptr::null_mut())?.outs)
    }

    /// Starts a collective and returns. Started collectives run one after another on their own thread; a direct
    /// collective of this group first waits for them. Collective.
    pub fn start<T: Element, O: Element>(&self, collective: Collective<T, O>) -> Result<Work<O>> {
        self.handle().sweep();
        let mut raw = std::ptr::null_mut();
        let buffers = collective.submit(self, &mut raw)?;
        let loan = Loan { raw, _ins: Box::new(buffers.ins), outs: Box::new(buffers.outs) };
        Ok(Work { loan: Some(loan), comm: Arc::downgrade(self.handle()), _out: PhantomData })
    }
}

/// The buffers of a started collective, until it has been waited for.
pub(crate) struct Loan {
    raw: *mut ds_sys::ds_work,
    _ins: Box<dyn Any + Send>,
    outs: Box<dyn Any + Send>,
}

// SAFETY: ds_work_wait and ds_work_test are [threadsafe], and only the loan has the handle and the buffers.
unsafe impl Send for Loan {}

impl Loan {
    pub(crate) fn ended(&self) -> bool {
        let mut done = 0;
        // SAFETY: the handle lives.
        unsafe { ds_sys::ds_work_test(self.raw, &mut done) == ds_sys::DS_OK && done != 0 }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // SAFETY: the buffers are freed after this. They are ours again when the wait has returned, with any status.
        unsafe {
            ds_sys::ds_work_wait(self.raw);
            ds_sys::ds_work_destroy(self.raw);
        }
    }
}

/// A collective that was started. It owns its buffers until [`Work::wait`] returns them:
///
/// ```compile_fail,E0382
/// let comm = ds::Comm::join("self", &ds::CommOptions::default()).unwrap();
/// let mut data = vec![1.0f32];
/// let work = comm.start(ds::Collective::broadcast(vec![data], 0)).unwrap();
/// data[0] = 2.0; // moved into the collective
/// work.wait().unwrap();
/// ```
///
/// If this object is dropped, the collective continues, and the group keeps the buffers until it has ended.
#[must_use = "a collective that is not waited for keeps its buffers"]
pub struct Work<O: Element> {
    loan: Option<Loan>,
    comm: Weak<Handle>,
    _out: PhantomData<O>,
}

// SAFETY: a shared reference can only ask whether the collective has ended, which is [threadsafe].
unsafe impl<O: Element> Sync for Work<O> {}

impl<O: Element> Work<O> {
    /// Returns whether the collective has ended, with success or not.
    pub fn is_done(&self) -> bool {
        self.loan.as_ref().map_or(true, Loan::ended)
    }

    /// Waits until the collective has ended and returns the buffers.
    pub fn wait(mut self) -> Result<Vec<Vec<O>>> {
        let mut loan = match self.loan.take() {
            Some(loan) => loan,
            None => return Ok(Vec::new()),
        };
        // SAFETY: the handle lives.
        check(unsafe { ds_sys::ds_work_wait(loan.raw) })?;
        let outs = std::mem::replace(&mut loan.outs, Box::new(()));
        Ok(outs.downcast::<Vec<Vec<O>>>().map_or_else(|_| Vec::new(), |outs| *outs))
    }
}

impl<O: Element> Drop for Work<O> {
    fn drop(&mut self) {
        if let Some(loan) = self.loan.take() {
            match self.comm.upgrade() {
                Some(comm) if !loan.ended() => comm.keep(loan),
                _ => drop(loan), // it has ended, at the latest with its group
            }
        }
    }
}
