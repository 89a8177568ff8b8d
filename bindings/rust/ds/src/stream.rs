use crate::engine::{Engine, Group};
use crate::tensor::{create, dims_of, info_of, Element, Info};
use crate::{check, Error, Lease, Result, Tensor};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

// The largest number of dropped tensors that a stream may keep before it waits for its work.
const MOST_ENDED: usize = 256;

struct Queue {
    raw: *mut ds_sys::ds_stream,
    // Dropped tensors that the work of the stream may still use.
    ended: RefCell<Vec<Tensor>>,
    // True if the stream got no work since the last wait for it.
    idle: Cell<bool>,
}

impl Queue {
    fn synchronize(&self) -> Result<()> {
        // SAFETY: the handle lives.
        check(unsafe { ds_sys::ds_stream_synchronize(self.raw) })?;
        self.idle.set(true);
        self.ended.borrow_mut().clear();
        Ok(())
    }

    /// Frees a dropped tensor once the work that may use it is done.
    fn keep(&self, tensor: Tensor) {
        if self.idle.get() {
            return;
        }
        self.ended.borrow_mut().push(tensor);
        if self.ended.borrow().len() >= MOST_ENDED {
            // SAFETY: the handle lives. A stream that has failed keeps its tensors until it ends.
            if unsafe { ds_sys::ds_stream_synchronize(self.raw) } == ds_sys::DS_OK {
                self.idle.set(true);
                self.ended.borrow_mut().clear();
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle. It finishes its work, and the tensors are freed after that.
        unsafe { ds_sys::ds_stream_destroy(self.raw) }
    }
}

/// A queue of work on the device of an engine. The host does not see the memory of that device; "cpu" has no streams.
/// Copies, steps and inference over tensors of the stream run in the order of the calls. A tensor is kept until the
/// work that uses it is done.
#[derive(Clone)]
pub struct Stream {
    queue: Rc<Queue>,
}

impl Stream {
    /// Creates a stream on the engine's device. It remains usable after the engine has ended.
    pub fn new<G: Group>(engine: &mut Engine<G>) -> Result<Stream> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the handle lives.
        unsafe { check(ds_sys::ds_stream_create(engine.raw, &mut raw))? };
        Ok(Stream { queue: Rc::new(Queue { raw, ended: RefCell::new(Vec::new()), idle: Cell::new(true) }) })
    }

    /// Waits until the stream has done its work.
    pub fn synchronize(&self) -> Result<()> {
        self.queue.synchronize()
    }

    /// Creates a tensor of zeros on the device.
    pub fn zeros<T: Element>(&self, dims: &[usize]) -> Result<DeviceTensor> {
        // SAFETY: without data libds allocates the memory; the stream lives.
        Ok(self.own(unsafe { create::<T>(dims, None, std::ptr::null_mut(), self.queue.raw)? }))
    }

    /// Creates a tensor on the device with the elements of a tensor on the host. The copy runs in the order of the
    /// stream; the call does not wait for it.
    pub fn upload(&self, from: Tensor) -> Result<DeviceTensor> {
        let mut to = self.like(&info_of(from.raw)?)?;
        to.upload(from)?;
        Ok(to)
    }

    // Creates a tensor of zeros of the same type and shape.
    fn like(&self, info: &Info) -> Result<DeviceTensor> {
        Ok(self.own(create_like(info, self.queue.raw)?))
    }

    fn own(&self, raw: *mut ds_sys::ds_tensor) -> DeviceTensor {
        DeviceTensor { tensor: Some(Tensor::own(raw)), stream: self.clone() }
    }

    // Returns the handle for a call, and notes that the stream has work from here on.
    fn busy(&self) -> *mut ds_sys::ds_stream {
        self.queue.idle.set(false);
        self.queue.raw
    }
}

/// A tensor on the device of a [`Stream`]. All its uses run in the order of that stream.
pub struct DeviceTensor {
    tensor: Option<Tensor>,
    stream: Stream,
}

impl Drop for DeviceTensor {
    fn drop(&mut self) {
        if let Some(tensor) = self.tensor.take() {
            self.stream.queue.keep(tensor);
        }
    }
}

impl DeviceTensor {
    fn raw(&self) -> *mut ds_sys::ds_tensor {
        self.tensor.as_ref().map_or(std::ptr::null_mut(), |t| t.raw)
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Dimensions.
    pub fn dims(&self) -> Result<Vec<usize>> {
        Ok(info_of(self.raw())?.dims)
    }

    /// The name of the device, as in the configuration.
    pub fn device(&self) -> Result<&'static str> {
        Ok(info_of(self.raw())?.device)
    }

    /// Copies the elements of a tensor on the host, of the same type and shape, in the order of the stream and without
    /// waiting.
    pub fn upload(&mut self, from: Tensor) -> Result<()> {
        // SAFETY: both handles live, and the stream keeps the host's tensor until the copy is done.
        let copied = check(unsafe { ds_sys::ds_tensor_copy(self.raw(), from.raw, self.stream.busy()) });
        self.stream.queue.keep(from);
        copied
    }

    /// Copies the elements of another tensor of this stream, without waiting.
    pub fn copy_from(&mut self, from: &DeviceTensor) -> Result<()> {
        let stream = one_stream(&[self, from])?;
        // SAFETY: both handles live; a dropped tensor stays until the copy is done.
        check(unsafe { ds_sys::ds_tensor_copy(self.raw(), from.raw(), stream.busy()) })
    }

    /// Starts a copy of the elements to the host. The result is complete once the stream has reached this copy.
    pub fn download(&self) -> Result<Download> {
        let info = info_of(self.raw())?;
        let to = Tensor::own(create_like(&info, std::ptr::null_mut())?);
        let at = to.raw;
        let to = Download { tensor: Some(to), stream: self.stream.clone() };
        // SAFETY: both handles live; a dropped tensor stays until the copy is done.
        check(unsafe { ds_sys::ds_tensor_copy(at, self.raw(), self.stream.busy()) })?;
        Ok(to)
    }
}

/// A tensor on the host that a stream fills.
#[must_use = "Download::wait returns the tensor"]
pub struct Download {
    tensor: Option<Tensor>,
    stream: Stream,
}

impl Download {
    /// Waits for the stream and returns the tensor.
    pub fn wait(mut self) -> Result<Tensor> {
        self.stream.synchronize()?;
        self.tensor.take().ok_or_else(|| Error::argument("the tensor is gone".to_string()))
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        if let Some(tensor) = self.tensor.take() {
            self.stream.queue.keep(tensor);
        }
    }
}

// Creates a tensor of the same type and shape with its own memory, on the host or on the stream's device.
fn create_like(info: &Info, stream: *mut ds_sys::ds_stream) -> Result<*mut ds_sys::ds_tensor> {
    let (dims, mut raw) = (dims_of(&info.dims), std::ptr::null_mut());
    // SAFETY: dims has dims.len() numbers; without data libds allocates the memory; the stream lives.
    unsafe {
        let (strides, data) = (std::ptr::null(), std::ptr::null_mut());
        check(ds_sys::ds_tensor_create(info.dtype, dims.as_ptr(), dims.len(), strides, data, stream, &mut raw))?;
    }
    Ok(raw)
}

// Returns the stream that all tensors of a call share.
fn one_stream<'a>(tensors: &[&'a DeviceTensor]) -> Result<&'a Stream> {
    let first = tensors.first().ok_or_else(|| Error::argument("a call on a stream needs a tensor, got none".to_string()))?;
    if tensors.iter().any(|t| !Rc::ptr_eq(&t.stream.queue, &first.stream.queue)) {
        return Err(Error::argument("all tensors of a call must be of one stream, got several".to_string()));
    }
    Ok(&first.stream)
}

type Losing = unsafe extern "C" fn(
    *mut ds_sys::ds_engine,
    *const *const ds_sys::ds_tensor,
    usize,
    *mut ds_sys::ds_stream,
    *mut f64,
) -> ds_sys::ds_status;

/// Calls over tensors on the device, in the order of their stream.
impl<G: Group> Engine<G> {
    fn loss_on(&mut self, call: Losing, inputs: &[&DeviceTensor]) -> Result<f64> {
        let (stream, mut loss) = (one_stream(inputs)?, 0.0);
        let raws: Vec<_> = inputs.iter().map(|t| t.raw() as *const _).collect();
        // SAFETY: list and tensors live during the call; a dropped tensor stays until the stream has done its work.
        check(unsafe { call(self.raw, raws.as_ptr(), raws.len(), stream.busy(), &mut loss) })?;
        Ok(loss)
    }

    /// Like [`Engine::train_batch`].
    pub fn train_batch_on(&mut self, inputs: &[&DeviceTensor]) -> Result<f64> {
        self.loss_on(ds_sys::ds_train_batch, inputs)
    }

    /// Like [`Engine::forward`].
    pub fn forward_on(&mut self, inputs: &[&DeviceTensor]) -> Result<f64> {
        self.loss_on(ds_sys::ds_forward, inputs)
    }

    /// Like [`Engine::eval_batch`].
    pub fn eval_batch_on(&mut self, inputs: &[&DeviceTensor]) -> Result<f64> {
        self.loss_on(ds_sys::ds_eval_batch, inputs)
    }

    /// Like [`Engine::infer`]; the result is on the device.
    pub fn infer_on(&mut self, inputs: &[Option<&DeviceTensor>]) -> Result<DeviceTensor> {
        let given: Vec<&DeviceTensor> = inputs.iter().flatten().copied().collect();
        let stream = one_stream(&given)?;
        let raws: Vec<_> = inputs.iter().map(|t| t.map_or(std::ptr::null(), |t| t.raw() as *const _)).collect();
        let mut out = std::ptr::null_mut();
        // SAFETY: as in loss_on().
        check(unsafe { ds_sys::ds_infer(self.raw, raws.as_ptr(), raws.len(), stream.busy(), &mut out) })?;
        Ok(stream.own(out))
    }

    /// Like [`Engine::grad_ready`].
    pub fn grad_ready_on(&mut self, param: i32, grad: &DeviceTensor) -> Result<()> {
        // SAFETY: as in loss_on().
        check(unsafe { ds_sys::ds_grad_ready(self.raw, param, grad.raw(), grad.stream.busy()) })
    }
}

impl<G: Group> Lease<'_, G> {
    /// Copies the values of a leased parameter to a tensor on the device, in the order of the stream, and waits for the
    /// copy.
    pub fn values_on(&mut self, param: i32, stream: &Stream) -> Result<DeviceTensor> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the handles live.
        check(unsafe { ds_sys::ds_engine_param_view(self.raw, param, stream.busy(), &mut raw) })?;
        let view = Tensor::own(raw);
        let info = info_of(raw)?;
        let out = stream.like(&info)?;
        // SAFETY: both handles live until the copy is done.
        check(unsafe { ds_sys::ds_tensor_copy(out.raw(), view.raw, stream.busy()) })?;
        stream.synchronize()?; // so that the lease may end at any time
        Ok(out)
    }
}
