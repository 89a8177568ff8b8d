use crate::error::{contained, copied};
use crate::{address, check, name, optional, owned_text, path_text, CallbackResult, Comm, Error, Format, Result};
use std::ffi::c_void;
use std::os::raw::c_char;
use std::path::Path;
use std::sync::atomic::AtomicI32;

/// State of a run after a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    pub step: i64,
    pub steps: i64,
    /// Number of samples that the whole run has consumed, including those before a resume.
    pub samples: i64,
    pub loss: f64,
    /// None if this step was not evaluated.
    pub heldout_loss: Option<f64>,
    pub grad_norm: f64,
    pub lr: f64,
    pub tokens_per_second: f64,
    /// The factor of the loss; 1 unless fp16 is enabled.
    pub loss_scale: f64,
    /// The learning rate of the next step. A closure may change it, which sets the rate of all ranks from that step on.
    /// After NaN, the schedule sets the rate again.
    pub next_lr: f64,
}

/// A micro-batch of this rank that a run requests. It is leaf `micro_step` * ranks + rank of the step.
#[derive(Debug)]
pub struct Batch<'a> {
    pub step: i64,
    pub micro_step: i32,
    /// The closure must fill in the tokens.
    pub tokens: &'a mut [i32],
    /// The closure must fill in the token that follows each of `tokens`.
    pub targets: &'a mut [i32],
}

/// How much a run prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    ProgressBar,
    Lines,
    Nothing,
}

type BatchFn<'a> = Box<dyn FnMut(Batch<'_>) -> CallbackResult + 'a>;
type ProgressFn<'a> = Box<dyn FnMut(&mut Progress) -> bool + 'a>;

/// A training run like that of `libds train`: data, model, run folder, checkpoints, report.
#[must_use = "Run::train() runs it"]
pub struct Run<'a> {
    comm: Option<&'a Comm>,
    config: Option<&'a str>,
    resume: Option<&'a Path>,
    output: i32,
    stop: Option<&'a AtomicI32>,
    batch: Option<BatchFn<'a>>,
    progress: Option<ProgressFn<'a>>,
}

impl<'a> Run<'a> {
    /// Creates a run of a configuration in JSON.
    pub fn new(config: &'a str) -> Run<'a> {
        Run { config: Some(config), ..Run::empty() }
    }

    /// Continues a run folder from its newest checkpoint, or from one of its checkpoints. `config` is merged over the
    /// configuration of the run.
    pub fn resume(folder: &'a Path, config: Option<&'a str>) -> Run<'a> {
        Run { resume: Some(folder), config, ..Run::empty() }
    }

    fn empty() -> Run<'a> {
        Run { comm: None, config: None, resume: None, output: 2, stop: None, batch: None, progress: None }
    }

    /// Sets the group; without one the run has one rank.
    pub fn comm(self, comm: &'a Comm) -> Self {
        Run { comm: Some(comm), ..self }
    }

    /// Sets what the run prints, which is nothing by default.
    pub fn output(self, output: Output) -> Self {
        let output = match output {
            Output::ProgressBar => 0,
            Output::Lines => 1,
            Output::Nothing => 2,
        };
        Run { output, ..self }
    }

    /// Sets a stop flag. Once it is not 0, the run saves and ends with [`crate::Status::User`].
    pub fn stop(self, stop: &'a AtomicI32) -> Self {
        Run { stop: Some(stop), ..self }
    }

    /// Takes data from a closure instead of the configured data. If the closure returns an error, the run ends after a
    /// checkpoint.
    pub fn batch(self, batch: impl FnMut(Batch<'_>) -> CallbackResult + 'a) -> Self {
        Run { batch: Some(Box::new(batch)), ..self }
    }

    /// Calls a closure on rank 0 after every step that was not skipped; it may change [`Progress::next_lr`]. If it
    /// returns false, the run saves a checkpoint and ends with [`crate::Status::User`].
    pub fn progress(self, progress: impl FnMut(&mut Progress) -> bool + 'a) -> Self {
        Run { progress: Some(Box::new(progress)), ..self }
    }

    /// Runs the training. If a closure panics, the run ends after a checkpoint, and the panic resumes. Collective.
    pub fn train(mut self) -> Result<()> {
        let config = optional(self.config)?;
        let resume = self.resume.map(path_text).transpose()?;
        let batch: ds_sys::ds_run_batch_fn = if self.batch.is_some() { Some(call_batch) } else { None };
        let progress: ds_sys::ds_run_progress_fn = if self.progress.is_some() { Some(call_progress) } else { None };
        let comm = self.comm.map_or(std::ptr::null_mut(), Comm::raw);
        let stop = self.stop.map_or(std::ptr::null(), |s| (s as *const AtomicI32).cast::<i32>());
        let user_data: *mut c_void = std::ptr::addr_of_mut!(self).cast();
        // SAFETY: the callbacks run only inside the call, on this thread, and the objects that they use live as long.
        check(unsafe {
            let (config, resume) = (address(&config), address(&resume));
            ds_sys::ds_run_train(comm, config, resume, self.output, batch, progress, stop, user_data)
        })
    }
}

unsafe extern "C" fn call_batch(
    step: i64,
    micro_step: i32,
    tokens: *mut i32,
    targets: *mut i32,
    count: usize,
    user_data: *mut c_void,
) -> ds_sys::ds_status {
    contained(|| {
        let run = &mut *user_data.cast::<Run<'_>>();
        let tokens = std::slice::from_raw_parts_mut(tokens, count);
        let targets = std::slice::from_raw_parts_mut(targets, count);
        run.batch.as_mut().map_or(Ok(()), |batch| batch(Batch { step, micro_step, tokens, targets }))
    })
}

unsafe extern "C" fn call_progress(progress: *const ds_sys::ds_run_progress, user_data: *mut c_void) -> ds_sys::ds_status {
    let mut goes_on = true;
    let status = contained(|| {
        let run = &mut *user_data.cast::<Run<'_>>();
        let p = &*progress;
        let mut now = Progress {
            step: p.step,
            steps: p.steps,
            samples: p.samples,
            loss: p.loss,
            heldout_loss: if p.heldout_loss.is_nan() { None } else { Some(p.heldout_loss) },
            grad_norm: p.grad_norm,
            lr: p.lr,
            tokens_per_second: p.tokens_per_second,
            loss_scale: p.loss_scale,
            next_lr: *p.next_lr,
        };
        goes_on = run.progress.as_mut().map_or(true, |progress| progress(&mut now));
        *p.next_lr = now.next_lr;
        Ok(())
    });
    if goes_on {
        status
    } else {
        ds_sys::DS_ERROR_USER
    }
}

/// Merges `patch` over `config`, both JSON texts: objects are merged, null removes a key (RFC 7396).
pub fn merge_config(config: &str, patch: &str) -> Result<String> {
    let (config, patch) = (name(config)?, name(patch)?);
    // SAFETY: the texts live during the call.
    owned_text(|out| unsafe { ds_sys::ds_config_merge(config.as_ptr(), patch.as_ptr(), out) })
}

/// Returns the number of refused keys of a configuration of libds or DeepSpeed, and its meaning for this number of
/// ranks, as `libds config` prints it.
pub fn describe_config(config: &str, ranks: i32, format: Format) -> Result<(i32, String)> {
    let config = name(config)?;
    let mut refused = 0;
    // SAFETY: the text and the number live during the call.
    let text = owned_text(|out| unsafe {
        ds_sys::ds_config_describe(config.as_ptr(), ranks, format.raw(), &mut refused, out)
    })?;
    Ok((refused, text))
}

/// Returns the url of the group that a run joins: from its configuration, or else from the run that `resume` names, or
/// else "env".
pub fn communicator(config: Option<&str>, resume: Option<&Path>) -> Result<String> {
    let (config, resume) = (optional(config)?, resume.map(path_text).transpose()?);
    // SAFETY: the texts live during the call.
    owned_text(|out| unsafe { ds_sys::ds_run_communicator(address(&config), address(&resume), out) })
}

/// Returns JSON about a checkpoint, or the newest one in a folder of checkpoints or of a run. All of it is read and
/// compared with its hashes.
pub fn checkpoint_info(path: &Path) -> Result<String> {
    let path = path_text(path)?;
    // SAFETY: the path lives during the call.
    owned_text(|out| unsafe { ds_sys::ds_checkpoint_info(path.as_ptr(), out) })
}

/// Converts a checkpoint of DeepSpeed or libds. The options are those of ds.h. Returns JSON about the conversion.
pub fn convert_checkpoint(from: &Path, to: &Path, options: &str) -> Result<String> {
    let (from, to, options) = (path_text(from)?, path_text(to)?, name(options)?);
    // SAFETY: the texts live during the call.
    owned_text(|out| unsafe { ds_sys::ds_checkpoint_convert(from.as_ptr(), to.as_ptr(), options.as_ptr(), out) })
}

type Each<'a> = &'a mut dyn FnMut(&str) -> bool;

unsafe extern "C" fn call_text(part: *const c_char, user_data: *mut c_void) -> ds_sys::ds_status {
    let mut goes_on = true;
    let status = contained(|| {
        let each = &mut *user_data.cast::<Each<'_>>();
        goes_on = each(&copied(part));
        Ok(())
    });
    if goes_on {
        status
    } else {
        ds_sys::DS_ERROR_USER
    }
}

fn raw_comm(comm: Option<&Comm>) -> *mut ds_sys::ds_comm {
    comm.map_or(std::ptr::null_mut(), Comm::raw)
}

/// Continues a text with a run, a checkpoint or a model folder; `options` is JSON as in ds.h. `each` gets every new
/// part of the text. If it returns false on any rank, the text ends with [`crate::Status::User`] on all ranks; if it
/// panics, the text ends, too, and the panic resumes. Collective.
pub fn generate(
    comm: Option<&Comm>,
    model: &Path,
    prompt: Option<&str>,
    options: Option<&str>,
    each: Option<&mut dyn FnMut(&str) -> bool>,
) -> Result<String> {
    let (model, prompt, options) = (path_text(model)?, optional(prompt)?, optional(options)?);
    let mut each = each;
    let mut text: ds_sys::ds_run_text_fn = None;
    let mut user_data = std::ptr::null_mut();
    if let Some(each) = each.as_mut() {
        text = Some(call_text);
        user_data = (each as *mut Each<'_>).cast::<c_void>();
    }
    // SAFETY: the callback runs only inside the call, on this thread, and the objects that it uses live as long.
    owned_text(|out| unsafe {
        let (prompt, options) = (address(&prompt), address(&options));
        ds_sys::ds_run_generate(raw_comm(comm), model.as_ptr(), prompt, options, text, user_data, out)
    })
}

/// The result of [`verify`] and [`audit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Number of comparisons, or instructions, beyond their tolerance.
    pub failed: usize,
    pub report: String,
}

fn outcome(call: impl FnOnce(*mut i32, *mut *mut c_char) -> ds_sys::ds_status) -> Result<Outcome> {
    let mut failed = -1;
    let report = owned_text(|out| call(&mut failed, out))?;
    let failed = usize::try_from(failed).map_err(|_| Error::argument("libds gave no number of failures".to_string()))?;
    Ok(Outcome { failed, report })
}

/// Compares the recorded numbers of a model with those that libds computes; `options` is JSON as in ds.h. Collective.
pub fn verify(comm: Option<&Comm>, model: &Path, options: Option<&str>, format: Format) -> Result<Outcome> {
    let (model, options) = (path_text(model)?, optional(options)?);
    // SAFETY: everything lives during the call.
    outcome(|failed, out| unsafe {
        ds_sys::ds_run_verify(raw_comm(comm), model.as_ptr(), address(&options), format.raw(), failed, out)
    })
}

/// Trains a few steps on random tokens and reports where their time goes. Either `config` or `model` must be given.
/// Collective.
pub fn profile(
    comm: Option<&Comm>,
    config: Option<&str>,
    model: Option<&Path>,
    options: Option<&str>,
    format: Format,
) -> Result<String> {
    let (config, model, options) = (optional(config)?, model.map(path_text).transpose()?, optional(options)?);
    // SAFETY: everything lives during the call.
    owned_text(|out| unsafe {
        let (config, model) = (address(&config), address(&model));
        ds_sys::ds_run_profile(raw_comm(comm), config, model, address(&options), format.raw(), out)
    })
}

/// Trains a few steps and runs each instruction of the last one again, alone, against a reference. Collective.
pub fn audit(comm: Option<&Comm>, config: &str, options: Option<&str>, format: Format) -> Result<Outcome> {
    let (config, options) = (name(config)?, optional(options)?);
    // SAFETY: everything lives during the call.
    outcome(|failed, out| unsafe {
        ds_sys::ds_run_audit(raw_comm(comm), config.as_ptr(), address(&options), format.raw(), failed, out)
    })
}
