use crate::{check, name, owned_text, Comm, Error, Format, Graph, Result, Tensor, View};
use std::marker::PhantomData;
use std::os::raw::c_char;
use std::path::Path;

/// What an engine runs on; training options are JSON.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineOptions {
    /// Compute threads of this rank; 0: cores divided by the ranks of this host.
    pub threads: i32,
    /// Records spans for [`Engine::trace`].
    pub trace: bool,
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepResult {
    /// Steps made so far, skipped ones included.
    pub step: i64,
    /// Optimizer updates taken so far.
    pub updates: i64,
    /// Mean over all ranks.
    pub loss: f64,
    /// Of the mean gradient, before clipping.
    pub grad_norm: f64,
    pub lr: f64,
    /// Loss or gradients had NaN or infinity, nothing was updated.
    pub skipped: bool,
}

/// A training engine. In native mode it has a graph; without one a host keeps forward and backward (delegate mode).
///
/// It borrows its communicator and stays on that one's thread:
///
/// ```compile_fail
/// let engine = {
///     let comm = ds::Comm::join("self", &ds::CommOptions::default()).unwrap();
///     ds::Engine::new(Some(&comm), "{}", None, &ds::EngineOptions::default()).unwrap()
/// };
/// engine.steps();
/// ```
pub struct Engine<'c> {
    raw: *mut ds_sys::ds_engine,
    _comm: PhantomData<&'c Comm>,
}

impl Drop for Engine<'_> {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle.
        unsafe { ds_sys::ds_engine_destroy(self.raw) }
    }
}

fn path_text(path: &Path) -> Result<std::ffi::CString> {
    let text = path.to_str().ok_or_else(|| Error::argument(format!("a path must be UTF-8, got '{}'", path.display())))?;
    name(text)
}

fn raw_inputs(inputs: &[View<'_>]) -> Vec<*const ds_sys::ds_tensor> {
    inputs.iter().map(View::raw).collect()
}

impl<'c> Engine<'c> {
    /// Creates an engine; without a communicator it is alone. The graph is copied; without one the engine is in delegate
    /// mode. Collective.
    pub fn new(comm: Option<&'c Comm>, config: &str, graph: Option<&Graph>, options: &EngineOptions) -> Result<Engine<'c>> {
        let config = name(config)?;
        let comm = comm.map_or(std::ptr::null_mut(), Comm::raw);
        let graph = graph.map_or(std::ptr::null(), Graph::raw);
        let mut raw = std::ptr::null_mut();
        // SAFETY: the options are filled by libds first, and all pointers are valid during the calls.
        unsafe {
            let mut own: ds_sys::ds_engine_options = std::mem::zeroed();
            check(ds_sys::ds_engine_options_init(&mut own, std::mem::size_of_val(&own)))?;
            own.threads = options.threads;
            own.trace = i32::from(options.trace);
            check(ds_sys::ds_engine_create(comm, config.as_ptr(), graph, &own, &mut raw))?;
        }
        Ok(Engine { raw, _comm: PhantomData })
    }

    /// One step: inputs in graph order, each with all micro-batches one after the other. Returns the mean loss. Collective.
    pub fn train_batch(&mut self, inputs: &[View<'_>]) -> Result<f64> {
        let (inputs, mut loss) = (raw_inputs(inputs), 0.0);
        // SAFETY: the list and its tensors live during the call.
        unsafe { check(ds_sys::ds_train_batch(self.raw, inputs.as_ptr(), inputs.len(), &mut loss))? };
        Ok(loss)
    }

    /// Forward of one micro-batch; returns this rank's loss. Collective.
    pub fn forward(&mut self, inputs: &[View<'_>]) -> Result<f64> {
        let (inputs, mut loss) = (raw_inputs(inputs), 0.0);
        // SAFETY: the list and its tensors live during the call.
        unsafe { check(ds_sys::ds_forward(self.raw, inputs.as_ptr(), inputs.len(), &mut loss))? };
        Ok(loss)
    }

    /// Backward of the micro-batch; in delegate mode the end of a micro-step. Collective.
    pub fn backward(&mut self) -> Result<()> {
        // SAFETY: the handle lives.
        unsafe { check(ds_sys::ds_backward(self.raw)) }
    }

    /// The update behind the last micro-step. Collective.
    pub fn step(&mut self) -> Result<()> {
        // SAFETY: the handle lives.
        unsafe { check(ds_sys::ds_step(self.raw)) }
    }

    /// Loss of one micro-batch without dropout, mean over ranks. Collective.
    pub fn eval_batch(&mut self, inputs: &[View<'_>]) -> Result<f64> {
        let (inputs, mut loss) = (raw_inputs(inputs), 0.0);
        // SAFETY: the list and its tensors live during the call.
        unsafe { check(ds_sys::ds_eval_batch(self.raw, inputs.as_ptr(), inputs.len(), &mut loss))? };
        Ok(loss)
    }

    /// Output 1 of the graph for one micro-batch, as f32. An input that it does not depend on may be None. Collective.
    pub fn infer(&mut self, inputs: &[Option<View<'_>>]) -> Result<Tensor> {
        let inputs: Vec<_> = inputs.iter().map(|i| i.as_ref().map_or(std::ptr::null(), View::raw)).collect();
        let mut out = std::ptr::null_mut();
        // SAFETY: the list and its tensors live during the call.
        unsafe { check(ds_sys::ds_infer(self.raw, inputs.as_ptr(), inputs.len(), &mut out))? };
        Ok(Tensor::own(out))
    }

    /// Steps made so far.
    pub fn steps(&self) -> i64 {
        self.last_step().map_or(0, |last| last.step)
    }

    /// What became of the last step.
    pub fn last_step(&self) -> Result<StepResult> {
        // SAFETY: the structure is filled by libds.
        unsafe {
            let mut raw: ds_sys::ds_step_result = std::mem::zeroed();
            check(ds_sys::ds_engine_last_step(self.raw, &mut raw, std::mem::size_of_val(&raw)))?;
            Ok(StepResult {
                step: raw.step,
                updates: raw.updates,
                loss: raw.loss,
                grad_norm: raw.grad_norm,
                lr: raw.lr,
                skipped: raw.skipped != 0,
            })
        }
    }

    /// Why the last step was skipped; "" when it was not.
    pub fn skip_reason(&self) -> Result<String> {
        // SAFETY: the handle lives.
        owned_text(|out| unsafe { ds_sys::ds_engine_skip_reason(self.raw, out) })
    }

    /// A number by name, as ds.h lists them: "lr", "device_bytes", `param_groups[1].weight_decay`.
    pub fn get(&self, number: &str) -> Result<f64> {
        let (number, mut out) = (name(number)?, 0.0);
        // SAFETY: the handle lives.
        unsafe { check(ds_sys::ds_engine_get(self.raw, number.as_ptr(), &mut out))? };
        Ok(out)
    }

    /// Changes a number from the next step on; NaN gives it back to the configuration. The same on all ranks.
    pub fn set(&mut self, number: &str, value: f64) -> Result<()> {
        let number = name(number)?;
        // SAFETY: the handle lives.
        unsafe { check(ds_sys::ds_engine_set(self.raw, number.as_ptr(), value)) }
    }

    /// Number of parameters.
    pub fn param_count(&self) -> usize {
        // SAFETY: the handle lives.
        unsafe { ds_sys::ds_engine_param_count(self.raw) as usize }
    }

    /// The number of a parameter by its name.
    pub fn param(&self, param: &str) -> Result<i32> {
        let (param, mut out) = (name(param)?, -1);
        // SAFETY: the handle lives.
        unsafe { check(ds_sys::ds_engine_param_find(self.raw, param.as_ptr(), &mut out))? };
        Ok(out)
    }

    /// Name and dimensions of a parameter.
    pub fn param_info(&self, param: i32) -> Result<(String, Vec<usize>)> {
        let (mut text, mut dims, mut count) = (std::ptr::null(), [0i64; 8], 0);
        // SAFETY: the outputs are valid during the call, and the name lives as long as the engine.
        unsafe {
            check(ds_sys::ds_engine_param_info(self.raw, param, &mut text, dims.as_mut_ptr(), dims.len(), &mut count))?;
            Ok((crate::error::copied(text), dims[..count].iter().map(|&d| d as usize).collect()))
        }
    }

    fn numel(&self, param: i32) -> Result<usize> {
        Ok(self.param_info(param)?.1.iter().product())
    }

    /// Names of the states that [`Engine::read`] and [`Engine::write`] access: "master", those of the optimizer, "param",
    /// "grad".
    pub fn state_names(&self) -> Vec<String> {
        let mut out = Vec::new();
        // SAFETY: the names live as long as the engine.
        while let Some(text) = unsafe { ds_sys::ds_engine_state_name(self.raw, out.len() as i32).as_ref() } {
            // SAFETY: as above.
            out.push(unsafe { crate::error::copied(text as *const c_char) });
        }
        out
    }

    /// A whole state of a parameter. Collective.
    pub fn read(&mut self, param: i32, state: &str) -> Result<Vec<f32>> {
        let (state, mut out) = (name(state)?, vec![0f32; self.numel(param)?]);
        // SAFETY: out has as many elements as the call says.
        unsafe { check(ds_sys::ds_engine_read(self.raw, param, state.as_ptr(), out.as_mut_ptr(), out.len()))? };
        Ok(out)
    }

    /// Replaces a whole state of a parameter; the same values on all ranks. Collective.
    pub fn write(&mut self, param: i32, state: &str, values: &[f32]) -> Result<()> {
        let state = name(state)?;
        // SAFETY: values has as many elements as the call says.
        unsafe { check(ds_sys::ds_engine_write(self.raw, param, state.as_ptr(), values.as_ptr(), values.len())) }
    }

    /// From the next step on the parameters are not trained, or trained again. Collective.
    pub fn freeze(&mut self, params: &[i32], frozen: bool) -> Result<()> {
        // SAFETY: params lives during the call.
        unsafe { check(ds_sys::ds_engine_freeze(self.raw, params.as_ptr(), params.len(), i32::from(frozen))) }
    }

    /// Makes a group of parameters whose updates have values of their own; `options` is JSON as ds.h says. Returns its
    /// number. Collective.
    pub fn add_group(&mut self, params: &[i32], options: &str) -> Result<usize> {
        let (options, mut out) = (name(options)?, -1);
        // SAFETY: everything lives during the call.
        unsafe { check(ds_sys::ds_engine_group_add(self.raw, params.as_ptr(), params.len(), options.as_ptr(), &mut out))? };
        Ok(out as usize)
    }

    /// Bytes per tier and kind.
    pub fn plan_report(&self, format: Format) -> Result<String> {
        // SAFETY: the handle lives.
        owned_text(|out| unsafe { ds_sys::ds_engine_plan_report(self.raw, format.raw(), out) })
    }

    /// Writes the spans recorded since the last call as Chrome trace-event JSON.
    pub fn trace(&mut self, path: &Path) -> Result<()> {
        let path = path_text(path)?;
        // SAFETY: the path lives during the call.
        unsafe { check(ds_sys::ds_engine_trace(self.raw, path.as_ptr())) }
    }

    /// Saves a checkpoint below `folder`; `options` is JSON: "client_state", "keep". Collective.
    pub fn save(&mut self, folder: &Path, options: Option<&str>) -> Result<()> {
        let folder = path_text(folder)?;
        let options = options.map(name).transpose()?;
        // SAFETY: everything lives during the call.
        unsafe {
            let options = options.as_ref().map_or(std::ptr::null(), |o| o.as_ptr());
            check(ds_sys::ds_checkpoint_save(self.raw, folder.as_ptr(), options))
        }
    }

    /// Loads the newest complete checkpoint below `folder`, or the one at it. Returns its client state as JSON. Collective.
    pub fn load(&mut self, folder: &Path) -> Result<String> {
        let folder = path_text(folder)?;
        // SAFETY: everything lives during the call.
        owned_text(|out| unsafe { ds_sys::ds_checkpoint_load(self.raw, folder.as_ptr(), out) })
    }

    /// Takes the weights of a Hugging Face model folder. Collective.
    pub fn load_model(&mut self, folder: &Path) -> Result<()> {
        let folder = path_text(folder)?;
        // SAFETY: the path lives during the call.
        unsafe { check(ds_sys::ds_checkpoint_load_model(self.raw, folder.as_ptr())) }
    }

    /// Writes the masters as a Hugging Face model, like the one at `like`. Collective.
    pub fn save_model(&mut self, folder: &Path, like: Option<&Path>) -> Result<()> {
        let folder = path_text(folder)?;
        let like = like.map(path_text).transpose()?;
        // SAFETY: the paths live during the call.
        unsafe {
            let like = like.as_ref().map_or(std::ptr::null(), |l| l.as_ptr());
            check(ds_sys::ds_checkpoint_save_model(self.raw, folder.as_ptr(), like))
        }
    }

    /// Delegate mode: registers a parameter of zeros and returns its number.
    pub fn add_param(&mut self, param: &str, dims: &[usize]) -> Result<i32> {
        let param = name(param)?;
        let dims: Vec<i64> = dims.iter().map(|&d| d as i64).collect();
        let mut out = -1;
        // SAFETY: the name and the dimensions live during the call.
        unsafe { check(ds_sys::ds_engine_param_add(self.raw, param.as_ptr(), dims.as_ptr(), dims.len(), &mut out))? };
        Ok(out)
    }

    /// Delegate mode: ends the registration and takes the memory; before everything else but `add_param`. Collective.
    pub fn start(&mut self) -> Result<()> {
        // SAFETY: the engine is alive and alone with this thread.
        unsafe { check(ds_sys::ds_engine_start(self.raw)) }
    }

    /// Delegate mode: says that what follows is an evaluation, or training again. Collective.
    pub fn evaluate(&mut self, on: bool) -> Result<()> {
        // SAFETY: the engine is alive and alone with this thread.
        unsafe { check(ds_sys::ds_engine_evaluate(self.raw, i32::from(on))) }
    }

    /// Delegate mode: leases whole parameters until the lease ends. Collective.
    pub fn gather(&mut self, params: &[i32]) -> Result<Lease<'_, 'c>> {
        // SAFETY: params lives during the call.
        unsafe { check(ds_sys::ds_gather_params(self.raw, params.as_ptr(), params.len()))? };
        Ok(Lease { engine: self, params: params.to_vec(), held: true })
    }

    /// Delegate mode: hands over this rank's gradient of a parameter for the running micro-step. Collective.
    pub fn grad_ready(&mut self, param: i32, grad: &View<'_>) -> Result<()> {
        // SAFETY: the gradient lives during the call, which copies it.
        unsafe { check(ds_sys::ds_grad_ready(self.raw, param, grad.raw())) }
    }

    /// Delegate mode: `body` writes this rank's gradient of a parameter that computes in f32 where it goes, and nothing is
    /// copied. What is there before means nothing.
    pub fn write_grad(&mut self, param: i32, body: impl FnOnce(&mut [f32])) -> Result<()> {
        let mut out = std::ptr::null_mut();
        // SAFETY: the place is this host's until the gradient is handed over, which needs the engine that body has not.
        unsafe { check(ds_sys::ds_engine_grad_view(self.raw, param, &mut out))? };
        let mut place = Tensor::own(out);
        body(place.data_mut::<f32>()?);
        let grad = place.view();
        self.grad_ready(param, &grad)
    }
}

/// Whole parameters of a delegate engine, to be read. It ends with [`Lease::release`], or when it is dropped; both are
/// collective.
pub struct Lease<'e, 'c> {
    engine: &'e mut Engine<'c>,
    params: Vec<i32>,
    held: bool,
}

impl Lease<'_, '_> {
    /// The values of a parameter that computes in f32, copied out.
    pub fn values(&self, param: i32) -> Result<Vec<f32>> {
        let mut out = std::ptr::null_mut();
        // SAFETY: the handle lives; the view ends before the lease.
        unsafe { check(ds_sys::ds_engine_param_view(self.engine.raw, param, &mut out))? };
        Ok(Tensor::own(out).data::<f32>()?.to_vec())
    }

    /// Calls `body` with the values where they lie, without a copy.
    pub fn with_values<R>(&self, param: i32, body: impl FnOnce(&[f32]) -> R) -> Result<R> {
        let mut out = std::ptr::null_mut();
        // SAFETY: the handle lives; the view ends before the lease.
        unsafe { check(ds_sys::ds_engine_param_view(self.engine.raw, param, &mut out))? };
        let tensor = Tensor::own(out);
        let values = tensor.data::<f32>()?;
        Ok(body(values))
    }

    /// Hands over a gradient while the parameters are leased, as backward does.
    pub fn grad_ready(&mut self, param: i32, grad: &View<'_>) -> Result<()> {
        self.engine.grad_ready(param, grad)
    }

    /// As [`Engine::write_grad`].
    pub fn write_grad(&mut self, param: i32, body: impl FnOnce(&mut [f32])) -> Result<()> {
        self.engine.write_grad(param, body)
    }

    /// Ends the lease. Collective.
    pub fn release(mut self) -> Result<()> {
        self.held = false;
        // SAFETY: params lives during the call.
        unsafe { check(ds_sys::ds_release_params(self.engine.raw, self.params.as_ptr(), self.params.len())) }
    }
}

impl Drop for Lease<'_, '_> {
    fn drop(&mut self) {
        if self.held {
            // SAFETY: as release(); an error of it shows in the next call.
            unsafe { ds_sys::ds_release_params(self.engine.raw, self.params.as_ptr(), self.params.len()) };
        }
    }
}
