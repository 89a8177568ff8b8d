use crate::error::contained;
use crate::tensor::{dims_of, info_of, Element};
use crate::{check, name, CallbackResult, Graph, Result, Value, View};
use std::ffi::c_void;
use std::marker::PhantomData;

/// An operation that a program computes, added with [`Graph::custom`]. Graphs, and the engines and plans created from
/// them, share the operation. It is called on the thread that is inside a call of an engine. It must not use that
/// engine, and must compute the same on all ranks. After an error or a panic in the operation, the engine is poisoned.
pub trait CustomOp: Send + Sync + 'static {
    /// Writes every element of `outputs`, whose previous contents are undefined. Tensors have as many rows as the
    /// micro-step, and floating-point inputs have the compute type of the engine.
    fn forward(&self, inputs: &[View<'_>], outputs: &mut [ViewMut<'_>]) -> CallbackResult;

    /// Returns whether [`CustomOp::backward`] computes gradients.
    fn is_differentiable(&self) -> bool {
        false
    }

    /// Writes every element of `input_grads`, which have the types and shapes of the inputs. The gradient of an output
    /// is None if the loss does not depend on that output; the gradient of an input is None if it is not needed.
    fn backward(
        &self,
        inputs: &[View<'_>],
        outputs: &[View<'_>],
        output_grads: &[Option<View<'_>>],
        input_grads: &mut [Option<ViewMut<'_>>],
    ) -> CallbackResult {
        let _ = (inputs, outputs, output_grads, input_grads);
        Err("this operation has no backward".into())
    }
}

/// Type and dimensions of an output of a custom operation.
#[derive(Clone, Debug)]
pub struct CustomOutput {
    dtype: ds_sys::ds_dtype,
    dims: Vec<i64>,
}

impl CustomOutput {
    /// Describes an output with the type of the first floating-point input, which is the compute type in an engine. A
    /// dimension of None is n, the number of rows of a micro-step.
    pub fn computed(dims: &[Option<usize>]) -> CustomOutput {
        let dims = dims.iter().map(|d| d.map_or(-1, |d| dims_of(&[d])[0])).collect();
        CustomOutput { dtype: ds_sys::DS_DTYPE_NONE, dims }
    }

    /// Describes an output with the type T.
    pub fn of<T: Element>(dims: &[Option<usize>]) -> CustomOutput {
        CustomOutput { dtype: T::DTYPE, ..CustomOutput::computed(dims) }
    }
}

/// A tensor that a custom operation fills.
pub struct ViewMut<'a> {
    raw: *mut ds_sys::ds_tensor,
    _data: PhantomData<&'a mut ()>,
}

impl ViewMut<'_> {
    /// Dimensions.
    pub fn dims(&self) -> Result<Vec<usize>> {
        Ok(info_of(self.raw)?.dims)
    }

    /// Returns the elements. Fails if they are not of type T.
    pub fn data_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        let (at, count) = info_of(self.raw)?.slice::<T>()?;
        // SAFETY: libds gives the memory to this call alone, and the reference to the view is the only one.
        Ok(if count == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(at, count) } })
    }
}

type Op = Box<dyn CustomOp>;

// The object that user_data points to, with the lengths of the lists that libds passes.
struct Called {
    op: Op,
    inputs: usize,
    outputs: usize,
}

unsafe fn views<'a>(list: *const *const ds_sys::ds_tensor, count: usize) -> Vec<Option<View<'a>>> {
    (0..count).map(|i| *list.add(i)).map(|raw| if raw.is_null() { None } else { Some(View::lent(raw as *mut _)) }).collect()
}

unsafe fn views_mut<'a>(list: *const *mut ds_sys::ds_tensor, count: usize) -> Vec<Option<ViewMut<'a>>> {
    let view = |raw: *mut ds_sys::ds_tensor| if raw.is_null() { None } else { Some(ViewMut { raw, _data: PhantomData }) };
    (0..count).map(|i| view(*list.add(i))).collect()
}

unsafe extern "C" fn call_forward(
    inputs: *const *const ds_sys::ds_tensor,
    outputs: *const *mut ds_sys::ds_tensor,
    user_data: *mut c_void,
) -> ds_sys::ds_status {
    contained(|| {
        let called = &*user_data.cast::<Called>();
        let inputs: Vec<_> = views(inputs, called.inputs).into_iter().flatten().collect();
        let mut outputs: Vec<_> = views_mut(outputs, called.outputs).into_iter().flatten().collect();
        called.op.forward(&inputs, &mut outputs)
    })
}

unsafe extern "C" fn call_backward(
    inputs: *const *const ds_sys::ds_tensor,
    outputs: *const *const ds_sys::ds_tensor,
    output_grads: *const *const ds_sys::ds_tensor,
    input_grads: *const *mut ds_sys::ds_tensor,
    user_data: *mut c_void,
) -> ds_sys::ds_status {
    contained(|| {
        let called = &*user_data.cast::<Called>();
        let given: Vec<_> = views(inputs, called.inputs).into_iter().flatten().collect();
        let made: Vec<_> = views(outputs, called.outputs).into_iter().flatten().collect();
        let output_grads = views(output_grads, called.outputs);
        called.op.backward(&given, &made, &output_grads, &mut views_mut(input_grads, called.inputs))
    })
}

unsafe extern "C" fn end(user_data: *mut c_void) {
    contained(|| {
        drop(Box::from_raw(user_data.cast::<Called>()));
        Ok(())
    });
}

impl Graph {
    /// Adds a custom operation and returns its first output; further outputs have the numbers after it. `op_name` is
    /// the name of the operation in texts and messages. Only the device "cpu" supports custom operations.
    pub fn custom(&mut self, op_name: &str, op: impl CustomOp, inputs: &[Value], outputs: &[CustomOutput]) -> Result<Value> {
        let (op_name, mut out) = (name(op_name)?, -1);
        let values: Vec<i32> = inputs.iter().map(|v| v.0).collect();
        let dtypes: Vec<_> = outputs.iter().map(|o| o.dtype).collect();
        let dims_counts: Vec<_> = outputs.iter().map(|o| o.dims.len()).collect();
        let dims: Vec<i64> = outputs.iter().flat_map(|o| o.dims.iter().copied()).collect();
        let mut backward: ds_sys::ds_custom_backward_fn = None;
        if op.is_differentiable() {
            backward = Some(call_backward);
        }
        let called = Box::into_raw(Box::new(Called { op: Box::new(op), inputs: inputs.len(), outputs: outputs.len() }));
        let own = ds_sys::ds_custom_op {
            struct_size: std::mem::size_of::<ds_sys::ds_custom_op>(),
            forward: Some(call_forward),
            backward,
            user_data: called.cast(),
            destroy: Some(end),
            outputs_count: outputs.len(),
            dtypes: dtypes.as_ptr(),
            dims_counts: dims_counts.as_ptr(),
            dims: dims.as_ptr(),
        };
        // SAFETY: the structure is copied and its lists live during the call; libds ends the operation, unless it refuses it.
        unsafe {
            let (graph, at) = (self.raw_mut(), values.as_ptr());
            let status = ds_sys::ds_graph_custom_op(graph, op_name.as_ptr(), &own, at, values.len(), &mut out);
            // Dropped only after the error has been read, since dropping the program's value may call libds, too.
            let refused = if status == ds_sys::DS_OK { None } else { Some(Box::from_raw(called)) };
            let result = check(status);
            drop(refused);
            result?;
        }
        Ok(Value(out))
    }
}
