use crate::error::contained;
use crate::{address, check, name, optional, owned_text, path_text};
use crate::{CallbackResult, Comm, Format, Graph, Result, Tensor, View};
use std::ffi::c_void;
use std::os::raw::c_char;
use std::path::Path;

/// Elements of a parameter whose initial values a closure may set.
#[derive(Debug)]
pub struct Part<'a> {
    /// Number of the parameter.
    pub param: i32,
    pub name: &'a str,
    /// The index of the first of these elements in the flattened parameter.
    pub first: usize,
    /// The values that the graph's init has drawn, or zeros in delegate mode. The closure may change them.
    pub values: &'a mut [f32],
}

/// A closure that sets initial values, see [`EngineOptions::init`].
pub type Init = Box<dyn FnMut(Part<'_>) -> CallbackResult + Send>;

/// Consecutive elements of one parameter that an [`Update`] updates.
#[derive(Debug)]
pub struct Elements<'a> {
    /// Number of the parameter.
    pub param: i32,
    /// The index of the first of these elements in the flattened parameter.
    pub first: usize,
    /// The number of this update of the parameter, from 1 on.
    pub update: i64,
    /// The values, which the closure changes.
    pub values: &'a mut [f32],
    /// The mean gradients over micro-steps and ranks, after clipping.
    pub grads: &'a [f32],
    /// The states that `optimizer.params.states` names, which the closure changes; all 0 at first.
    pub states: Vec<&'a mut [f32]>,
    /// The learning rate of the parameter's group, like the numbers below.
    pub lr: f64,
    pub weight_decay: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub momentum: f64,
}

/// A closure that is the optimizer, see [`EngineOptions::update`].
pub type Update = Box<dyn FnMut(Elements<'_>) -> CallbackResult + Send>;

/// The resources of an engine. The training options are in its JSON configuration.
#[derive(Default)]
pub struct EngineOptions {
    /// Compute threads of this rank; 0 means the cores divided by the ranks of this host.
    pub threads: i32,
    /// Whether to record spans for [`Engine::trace`].
    pub trace: bool,
    /// Sets initial values.
    pub init: Option<Init>,
    /// The optimizer of `{"type": "Callback"}`.
    pub update: Option<Update>,
}

impl EngineOptions {
    /// Sets initial values by `init`, which is called for the elements whose states this rank keeps, in one or more
    /// parts. Ranks with the same elements must set the same values. It is called when the engine is created or, in
    /// delegate mode, in [`Engine::start`]. If it returns an error, all ranks fail. If it panics, the panic resumes
    /// after the call.
    pub fn init(mut self, init: impl FnMut(Part<'_>) -> CallbackResult + Send + 'static) -> Self {
        self.init = Some(Box::new(init));
        self
    }

    /// Sets the optimizer of `{"type": "Callback"}`. `update` is called inside a step for the elements whose states this
    /// rank keeps, in one or more parts. It updates each element by its value, gradient and states alone, and in the same
    /// way on all ranks. If it returns an error, the step fails and the engines of all ranks are unusable. If it panics,
    /// the panic resumes after the call.
    pub fn update(mut self, update: impl FnMut(Elements<'_>) -> CallbackResult + Send + 'static) -> Self {
        self.update = Some(Box::new(update));
        self
    }
}

// SAFETY of the callers: the address is that of `count` elements which nobody else uses during the call.
unsafe fn lent<'a>(data: *mut f32, count: usize) -> &'a mut [f32] {
    if count == 0 {
        &mut []
    } else {
        std::slice::from_raw_parts_mut(data, count)
    }
}

unsafe extern "C" fn call_update(given: *const ds_sys::ds_update, user_data: *mut c_void) -> ds_sys::ds_status {
    contained(|| {
        let (update, u) = (&mut *user_data.cast::<Update>(), &*given);
        update(Elements {
            param: u.param,
            first: u.first as usize,
            update: u.update,
            values: lent(u.values, u.count),
            grads: lent(u.grads as *mut f32, u.count),
            states: (0..u.states_count).map(|k| lent(*u.states.add(k), u.count)).collect(),
            lr: u.lr,
            weight_decay: u.weight_decay,
            beta1: u.beta1,
            beta2: u.beta2,
            eps: u.eps,
            momentum: u.momentum,
        })
    })
}

unsafe extern "C" fn call_init(
    param: i32,
    text: *const c_char,
    first: i64,
    data: *mut f32,
    count: usize,
    user_data: *mut c_void,
) -> ds_sys::ds_status {
    contained(|| {
        let init = &mut *user_data.cast::<Init>();
        init(Part { param, name: &crate::error::copied(text), first: first as usize, values: lent(data, count) })
    })
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for () {}
    impl Sealed for crate::Comm {}
    impl Sealed for &crate::Comm {}
}

/// The group of an engine: `()` (one rank), a [`Comm`] that the engine owns, or a borrowed one.
pub trait Group: sealed::Sealed {
    #[doc(hidden)]
    fn comm(&self) -> Option<&Comm>;
}

impl Group for () {
    fn comm(&self) -> Option<&Comm> {
        None
    }
}

impl Group for Comm {
    fn comm(&self) -> Option<&Comm> {
        Some(self)
    }
}

impl Group for &Comm {
    fn comm(&self) -> Option<&Comm> {
        Some(self)
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepResult {
    /// Number of steps so far, including skipped ones.
    pub step: i64,
    /// Number of updates by the optimizer so far.
    pub updates: i64,
    /// The mean loss over all ranks.
    pub loss: f64,
    /// Norm of the mean gradient, before clipping.
    pub grad_norm: f64,
    pub lr: f64,
    /// True if nothing was updated, because loss or gradients had NaN or infinity, or because no target counted.
    pub skipped: bool,
    /// The factor of the loss; 1 unless fp16 is enabled.
    pub loss_scale: f64,
    /// True if the step was skipped while the dynamic loss scale is at its minimum.
    pub loss_scale_at_floor: bool,
}

/// A training engine. In native mode it has a graph; without one, the host keeps forward and backward (delegate mode).
///
/// An engine that borrows its communicator stays on the communicator's thread, and must end before the communicator:
///
/// ```compile_fail,E0597
/// let engine = {
///     let comm = ds::Comm::join("self", &ds::CommOptions::default()).unwrap();
///     ds::Engine::with_comm(&comm, "{}", None, ds::EngineOptions::default()).unwrap()
/// };
/// engine.steps();
/// ```
pub struct Engine<G: Group = ()> {
    pub(crate) raw: *mut ds_sys::ds_engine,
    init: *mut Init,
    update: *mut Update,
    group: G,
}

// SAFETY: one thread at a time uses an engine and its communicator: the engine moves with a communicator that it owns,
// and does not move with one that it borrows, as a Comm is not Sync. The closures are Send.
unsafe impl<G: Group + Send> Send for Engine<G> {}

impl<G: Group> Drop for Engine<G> {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle, or the closures that the handle calls.
        unsafe {
            ds_sys::ds_engine_destroy(self.raw);
            if !self.init.is_null() {
                drop(Box::from_raw(self.init));
            }
            if !self.update.is_null() {
                drop(Box::from_raw(self.update));
            }
        }
    }
}

fn raw_inputs(inputs: &[View<'_>]) -> Vec<*const ds_sys::ds_tensor> {
    inputs.iter().map(View::raw).collect()
}

impl Engine {
    /// Creates an engine of one rank. The graph is copied; without one the engine is in delegate mode.
    pub fn new(config: &str, graph: Option<&Graph>, options: EngineOptions) -> Result<Engine> {
        Engine::with_comm((), config, graph, options)
    }
}

impl<G: Group> Engine<G> {
    /// Creates an engine of a group. Collective.
    pub fn with_comm(group: G, config: &str, graph: Option<&Graph>, options: EngineOptions) -> Result<Engine<G>> {
        let config = name(config)?;
        let graph = graph.map_or(std::ptr::null(), Graph::raw);
        let comm = group.comm().map_or(std::ptr::null_mut(), Comm::raw);
        let init = options.init.map_or(std::ptr::null_mut(), |init| Box::into_raw(Box::new(init)));
        let update = options.update.map_or(std::ptr::null_mut(), |update| Box::into_raw(Box::new(update)));
        // From here on the engine frees the closures. Its handle is NULL until the engine has been created.
        let mut engine = Engine { raw: std::ptr::null_mut(), init, update, group };
        // SAFETY: libds fills the options first. All pointers are valid during the calls, and the closures live as long
        // as the engine.
        unsafe {
            let mut own: ds_sys::ds_engine_options = std::mem::zeroed();
            check(ds_sys::ds_engine_options_init(&mut own, std::mem::size_of_val(&own)))?;
            own.threads = options.threads;
            own.trace = i32::from(options.trace);
            if !init.is_null() {
                own.init = Some(call_init);
                own.init_user_data = init.cast();
            }
            if !update.is_null() {
                own.update = Some(call_update);
                own.update_user_data = update.cast();
            }
            check(ds_sys::ds_engine_create(comm, config.as_ptr(), graph, &own, &mut engine.raw))?;
        }
        Ok(engine)
    }

    /// The group.
    pub fn group(&self) -> &G {
        &self.group
    }

    /// Trains one step and returns the mean loss. The inputs are in the order of the graph, each with all micro-batches
    /// in sequence. Collective.
    pub fn train_batch(&mut self, inputs: &[View<'_>]) -> Result<f64> {
        let (inputs, mut loss) = (raw_inputs(inputs), 0.0);
        // SAFETY: the list and its tensors live during the call.
        unsafe { check(ds_sys::ds_train_batch(self.raw, inputs.as_ptr(), inputs.len(), std::ptr::null_mut(), &mut loss))? };
        Ok(loss)
    }

    /// Takes part in the steps of the other ranks, after this rank has run out of data, until all ranks have called
    /// join. Returns the number of these steps. Collective.
    pub fn join(&mut self) -> Result<i64> {
        let mut steps = 0;
        // SAFETY: the handle lives.
        unsafe { check(ds_sys::ds_engine_join(self.raw, &mut steps))? };
        Ok(steps)
    }

    /// Computes the forward of one micro-batch and returns this rank's loss. Collective.
    pub fn forward(&mut self, inputs: &[View<'_>]) -> Result<f64> {
        let (inputs, mut loss) = (raw_inputs(inputs), 0.0);
        // SAFETY: the list and its tensors live during the call.
        unsafe { check(ds_sys::ds_forward(self.raw, inputs.as_ptr(), inputs.len(), std::ptr::null_mut(), &mut loss))? };
        Ok(loss)
    }

    /// Computes the backward of the micro-batch; in delegate mode, ends the micro-step. Collective.
    pub fn backward(&mut self) -> Result<()> {
        // SAFETY: the handle lives.
        unsafe { check(ds_sys::ds_backward(self.raw)) }
    }

    /// Updates the parameters after the last micro-step. Collective.
    pub fn step(&mut self) -> Result<()> {
        // SAFETY: the handle lives.
        unsafe { check(ds_sys::ds_step(self.raw)) }
    }

    /// Returns the loss of one micro-batch without dropout, as the mean over all ranks. Collective.
    pub fn eval_batch(&mut self, inputs: &[View<'_>]) -> Result<f64> {
        let (inputs, mut loss) = (raw_inputs(inputs), 0.0);
        // SAFETY: the list and its tensors live during the call.
        unsafe { check(ds_sys::ds_eval_batch(self.raw, inputs.as_ptr(), inputs.len(), std::ptr::null_mut(), &mut loss))? };
        Ok(loss)
    }

    /// Returns output 1 of the graph for one micro-batch, as f32, or with the key `inferred` the loss of each target. An
    /// input on which it does not depend may be None. Collective.
    pub fn infer(&mut self, inputs: &[Option<View<'_>>]) -> Result<Tensor> {
        let inputs: Vec<_> = inputs.iter().map(|i| i.as_ref().map_or(std::ptr::null(), View::raw)).collect();
        let mut out = std::ptr::null_mut();
        // SAFETY: the list and its tensors live during the call.
        unsafe { check(ds_sys::ds_infer(self.raw, inputs.as_ptr(), inputs.len(), std::ptr::null_mut(), &mut out))? };
        Ok(Tensor::own(out))
    }

    /// Returns the number of steps so far, including those before a load.
    pub fn steps(&self) -> i64 {
        self.get("step").map_or(0, |steps| steps as i64)
    }

    /// Returns the result of the last step.
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
                loss_scale: raw.loss_scale,
                loss_scale_at_floor: raw.loss_scale_at_floor != 0,
            })
        }
    }

    /// Returns why the last step was skipped; "" if it was not.
    pub fn skip_reason(&self) -> Result<String> {
        // SAFETY: the handle lives.
        owned_text(|out| unsafe { ds_sys::ds_engine_skip_reason(self.raw, out) })
    }

    /// Returns a number by its name, as ds.h lists them: "lr", "device_bytes", `param_groups[1].weight_decay`.
    pub fn get(&self, number: &str) -> Result<f64> {
        let (number, mut out) = (name(number)?, 0.0);
        // SAFETY: the handle lives.
        unsafe { check(ds_sys::ds_engine_get(self.raw, number.as_ptr(), &mut out))? };
        Ok(out)
    }

    /// Changes a number from the next step on. After NaN, the configuration sets the number again. All ranks must pass
    /// the same value.
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

    /// Returns the number of the parameter with this name.
    pub fn param(&self, param: &str) -> Result<i32> {
        let (param, mut out) = (name(param)?, -1);
        // SAFETY: the handle lives.
        unsafe { check(ds_sys::ds_engine_param_find(self.raw, param.as_ptr(), &mut out))? };
        Ok(out)
    }

    /// Returns the name and the dimensions of a parameter.
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

    /// The names of the states that [`Engine::read`] and [`Engine::write`] access: "master", those of the optimizer,
    /// "param", "grad".
    pub fn state_names(&self) -> Vec<String> {
        let mut out = Vec::new();
        // SAFETY: the names live as long as the engine.
        while let Some(text) = unsafe { ds_sys::ds_engine_state_name(self.raw, out.len() as i32).as_ref() } {
            // SAFETY: as above.
            out.push(unsafe { crate::error::copied(text as *const c_char) });
        }
        out
    }

    /// Returns a whole state of a parameter. Collective.
    pub fn read(&mut self, param: i32, state: &str) -> Result<Vec<f32>> {
        let (state, mut out) = (name(state)?, vec![0f32; self.numel(param)?]);
        // SAFETY: out has as many elements as the call says.
        unsafe { check(ds_sys::ds_engine_read(self.raw, param, state.as_ptr(), out.as_mut_ptr(), out.len()))? };
        Ok(out)
    }

    /// Replaces a whole state of a parameter. All ranks must pass the same values. Collective.
    pub fn write(&mut self, param: i32, state: &str, values: &[f32]) -> Result<()> {
        let state = name(state)?;
        // SAFETY: values has as many elements as the call says.
        unsafe { check(ds_sys::ds_engine_write(self.raw, param, state.as_ptr(), values.as_ptr(), values.len())) }
    }

    /// Returns the range of elements of a flattened parameter whose states this rank updates.
    pub fn local_range(&self, param: i32) -> Result<std::ops::Range<usize>> {
        let (mut first, mut count) = (0, 0);
        // SAFETY: the handle lives.
        unsafe { check(ds_sys::ds_engine_local_range(self.raw, param, &mut first, &mut count))? };
        Ok(first as usize..(first + count) as usize)
    }

    /// Like [`Engine::read`], for the elements of [`Engine::local_range`] only, without communication.
    pub fn read_local(&mut self, param: i32, state: &str) -> Result<Vec<f32>> {
        let (state, mut out) = (name(state)?, vec![0f32; self.local_range(param)?.len()]);
        // SAFETY: out has as many elements as the call says.
        unsafe { check(ds_sys::ds_engine_read_local(self.raw, param, state.as_ptr(), out.as_mut_ptr(), out.len()))? };
        Ok(out)
    }

    /// Like [`Engine::write`], for the elements of [`Engine::local_range`]. Call it on all ranks, then call
    /// [`Engine::refresh`].
    pub fn write_local(&mut self, param: i32, state: &str, values: &[f32]) -> Result<()> {
        let state = name(state)?;
        // SAFETY: values has as many elements as the call says.
        unsafe { check(ds_sys::ds_engine_write_local(self.raw, param, state.as_ptr(), values.as_ptr(), values.len())) }
    }

    /// Recomputes all compute copies from their masters. Collective.
    pub fn refresh(&mut self) -> Result<()> {
        // SAFETY: the handle lives.
        unsafe { check(ds_sys::ds_engine_refresh(self.raw)) }
    }

    /// Freezes parameters from the next step on, or trains them again if `frozen` is false. Collective.
    pub fn freeze(&mut self, params: &[i32], frozen: bool) -> Result<()> {
        // SAFETY: params lives during the call.
        unsafe { check(ds_sys::ds_engine_freeze(self.raw, params.as_ptr(), params.len(), i32::from(frozen))) }
    }

    /// Moves parameters to a new group with its own values for updates; `options` is JSON as in ds.h. Returns the
    /// number of the group. Collective.
    pub fn add_group(&mut self, params: &[i32], options: &str) -> Result<usize> {
        let (options, mut out) = (name(options)?, -1);
        // SAFETY: everything lives during the call.
        unsafe { check(ds_sys::ds_engine_group_add(self.raw, params.as_ptr(), params.len(), options.as_ptr(), &mut out))? };
        Ok(out as usize)
    }

    /// Returns the program of a step in its text form.
    pub fn plan_print(&self) -> Result<String> {
        // SAFETY: the handle lives.
        owned_text(|out| unsafe { ds_sys::ds_engine_plan_print(self.raw, out) })
    }

    /// Returns the bytes per tier and kind.
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

    /// Saves a checkpoint below `folder`; `options` is JSON: "client_state", "tag", "keep", "async". Collective.
    pub fn save(&mut self, folder: &Path, options: Option<&str>) -> Result<()> {
        let folder = path_text(folder)?;
        let options = optional(options)?;
        // SAFETY: everything lives during the call.
        unsafe { check(ds_sys::ds_checkpoint_save(self.raw, folder.as_ptr(), address(&options))) }
    }

    /// Waits until a save with "async" has ended, and returns its error. Collective.
    pub fn wait_saved(&mut self) -> Result<()> {
        // SAFETY: the engine is alive.
        unsafe { check(ds_sys::ds_checkpoint_wait(self.raw)) }
    }

    /// Loads the newest complete checkpoint below `folder`, or the one at `folder`; `options` is JSON: "tag". Returns
    /// the client state as JSON. Collective.
    pub fn load(&mut self, folder: &Path, options: Option<&str>) -> Result<String> {
        let (folder, options) = (path_text(folder)?, optional(options)?);
        // SAFETY: everything lives during the call.
        owned_text(|out| unsafe { ds_sys::ds_checkpoint_load(self.raw, folder.as_ptr(), address(&options), out) })
    }

    /// Attaches a tensor to the next save, for this rank. A later value of the same name replaces it.
    pub fn attach(&mut self, attachment: &str, value: &View<'_>) -> Result<()> {
        let attachment = name(attachment)?;
        // SAFETY: the name and the value live during the call, which copies the value.
        unsafe { check(ds_sys::ds_checkpoint_attach(self.raw, attachment.as_ptr(), value.raw())) }
    }

    /// Returns what `rank` attached to the checkpoint that was loaded last.
    pub fn attachment(&self, attachment: &str, rank: i32) -> Result<Tensor> {
        let (attachment, mut out) = (name(attachment)?, std::ptr::null_mut());
        // SAFETY: the name lives during the call.
        unsafe { check(ds_sys::ds_checkpoint_attachment(self.raw, attachment.as_ptr(), rank, &mut out))? };
        Ok(Tensor::own(out))
    }

    /// Loads the weights of a Hugging Face model folder. Collective.
    pub fn load_model(&mut self, folder: &Path) -> Result<()> {
        let folder = path_text(folder)?;
        // SAFETY: the path lives during the call.
        unsafe { check(ds_sys::ds_checkpoint_load_model(self.raw, folder.as_ptr())) }
    }

    /// Writes the masters as a Hugging Face model folder, with files and names like the folder `like`. Collective.
    pub fn save_model(&mut self, folder: &Path, like: Option<&Path>) -> Result<()> {
        let folder = path_text(folder)?;
        let like = like.map(path_text).transpose()?;
        // SAFETY: the paths live during the call.
        unsafe {
            let like = like.as_ref().map_or(std::ptr::null(), |l| l.as_ptr());
            check(ds_sys::ds_checkpoint_save_model(self.raw, folder.as_ptr(), like))
        }
    }
}
