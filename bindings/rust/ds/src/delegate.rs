use crate::engine::{Engine, Group};
use crate::tensor::{dims_of, Element};
use crate::{check, name, Result, Tensor, View};
use std::ops::{Deref, DerefMut};

/// Delegate mode.
impl<G: Group> Engine<G> {
    /// Registers a parameter and returns its number. The parameter is zero unless the options of the engine have an
    /// `init`.
    pub fn add_param(&mut self, param: &str, dims: &[usize]) -> Result<i32> {
        self.add(param, dims, ds_sys::DS_DTYPE_NONE)
    }

    /// Registers a parameter whose views and gradients have the type `T`: f32, or the compute type of the configuration.
    pub fn add_param_of<T: Element>(&mut self, param: &str, dims: &[usize]) -> Result<i32> {
        self.add(param, dims, T::DTYPE)
    }

    fn add(&mut self, param: &str, dims: &[usize], dtype: ds_sys::ds_dtype) -> Result<i32> {
        let (param, dims, mut out) = (name(param)?, dims_of(dims), -1);
        // SAFETY: the name and the dimensions live during the call.
        unsafe {
            check(ds_sys::ds_engine_param_add(self.raw, param.as_ptr(), dtype, dims.as_ptr(), dims.len(), &mut out))?
        };
        Ok(out)
    }

    /// Ends the registration, plans the memory and allocates it. Collective.
    pub fn start(&mut self) -> Result<()> {
        // SAFETY: the engine is alive and alone with this thread.
        unsafe { check(ds_sys::ds_engine_start(self.raw)) }
    }

    /// Begins an evaluation, or returns to training. Collective.
    pub fn evaluate(&mut self, on: bool) -> Result<()> {
        // SAFETY: the engine is alive and alone with this thread.
        unsafe { check(ds_sys::ds_engine_evaluate(self.raw, i32::from(on))) }
    }

    /// Forgets the gradients and micro-steps of the current step, as after an error in the host's backward pass. The
    /// next gradient begins the step anew. Needs that no lease is open. Collective.
    pub fn drop_step(&mut self) -> Result<()> {
        // SAFETY: the engine is alive and alone with this thread.
        unsafe { check(ds_sys::ds_engine_drop_step(self.raw)) }
    }

    /// Leases whole parameters until the lease ends. Collective.
    pub fn gather(&mut self, params: &[i32]) -> Result<Lease<'_, G>> {
        // SAFETY: params lives during the call.
        unsafe { check(ds_sys::ds_gather_params(self.raw, params.as_ptr(), params.len(), std::ptr::null_mut()))? };
        Ok(Lease { engine: self, params: params.to_vec(), held: true })
    }

    /// Hands over this rank's gradient of a parameter for the running micro-step. Collective.
    pub fn grad_ready(&mut self, param: i32, grad: &View<'_>) -> Result<()> {
        // SAFETY: the gradient lives during the call, which copies it.
        unsafe { check(ds_sys::ds_grad_ready(self.raw, param, grad.raw(), std::ptr::null_mut())) }
    }

    /// Hands over this rank's gradients of several parameters in one call, in this order. Collective.
    pub fn grads_ready(&mut self, grads: &[(i32, View<'_>)]) -> Result<()> {
        let params: Vec<i32> = grads.iter().map(|(param, _)| *param).collect();
        let values: Vec<_> = grads.iter().map(|(_, grad)| grad.raw() as *const _).collect();
        // SAFETY: both lists and the gradients live during the call, which copies them.
        unsafe { check(ds_sys::ds_grads_ready(self.raw, params.as_ptr(), params.len(), values.as_ptr(), std::ptr::null_mut())) }
    }

    /// Returns the values of a parameter in its compute type, in place. The parameter is leased, or whole on every rank
    /// (all at ZeRO stages 0 to 2), which needs no lease.
    pub fn values<T: Element>(&self, param: i32) -> Result<&[T]> {
        let mut out = std::ptr::null_mut();
        // SAFETY: the handle lives.
        unsafe { check(ds_sys::ds_engine_param_view(self.raw, param, std::ptr::null_mut(), &mut out))? };
        let view = Tensor::own(out);
        let values = view.data::<T>()?;
        // SAFETY: the memory belongs to the lease or the engine, not to the handle. It stays in place until the lease
        // or, without one, the engine ends. Ending a lease, and any call that writes parameters, need the lease or its
        // engine as a unique reference.
        Ok(unsafe { std::slice::from_raw_parts(values.as_ptr(), values.len()) })
    }

    /// Hands over this rank's gradient of a parameter without a copy: `body` writes it, in the compute type, directly
    /// into the memory of the engine. (If the device has its own memory, the gradient is then copied there.) The
    /// previous contents are undefined.
    pub fn write_grad<T: Element>(&mut self, param: i32, body: impl FnOnce(&mut [T])) -> Result<()> {
        let mut out = std::ptr::null_mut();
        // SAFETY: the place belongs to this host until the gradient is handed over, which needs the engine that body
        // does not have.
        unsafe { check(ds_sys::ds_engine_grad_view(self.raw, param, std::ptr::null_mut(), &mut out))? };
        let mut place = Tensor::own(out);
        body(place.data_mut::<T>()?);
        let grad = place.view();
        self.grad_ready(param, &grad)
    }
}

/// A lease of whole parameters of a delegate engine, for reading. It ends with [`Lease::release`], or when it is
/// dropped; both are collective. All other calls of the engine can be made through the lease, including further leases,
/// which end before it.
///
/// Values cannot be kept after the lease:
///
/// ```compile_fail,E0505
/// # let mut engine = ds::Engine::new("{}", None, ds::EngineOptions::default()).unwrap();
/// let lease = engine.gather(&[0]).unwrap();
/// let values = lease.values::<f32>(0).unwrap();
/// lease.release().unwrap();
/// println!("{values:?}");
/// ```
pub struct Lease<'e, G: Group = ()> {
    engine: &'e mut Engine<G>,
    params: Vec<i32>,
    held: bool,
}

impl<G: Group> Lease<'_, G> {
    /// Ends the lease. Collective.
    pub fn release(mut self) -> Result<()> {
        self.held = false;
        // SAFETY: params lives during the call.
        unsafe { check(ds_sys::ds_release_params(self.engine.raw, self.params.as_ptr(), self.params.len(), std::ptr::null_mut())) }
    }
}

impl<G: Group> Deref for Lease<'_, G> {
    type Target = Engine<G>;
    fn deref(&self) -> &Engine<G> {
        self.engine
    }
}

impl<G: Group> DerefMut for Lease<'_, G> {
    fn deref_mut(&mut self) -> &mut Engine<G> {
        self.engine
    }
}

impl<G: Group> Drop for Lease<'_, G> {
    fn drop(&mut self) {
        if self.held {
            // SAFETY: as in release(); an error shows in the next call.
            unsafe { ds_sys::ds_release_params(self.engine.raw, self.params.as_ptr(), self.params.len(), std::ptr::null_mut()) };
        }
    }
}
