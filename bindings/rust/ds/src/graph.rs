use crate::tensor::{dims_of, Element};
use crate::{address, check, name, optional, owned_text, Format, Result};

/// A value of a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value(pub i32);

/// A model as a graph of operations (docs/reference/ops.md).
pub struct Graph {
    raw: *mut ds_sys::ds_graph,
}

// SAFETY: distinct handles are independent.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle.
        unsafe { ds_sys::ds_graph_destroy(self.raw) }
    }
}

impl Graph {
    /// Creates an empty graph; `bound` is the largest number of rows of one micro-step.
    pub fn new(graph_name: &str, bound: usize) -> Result<Graph> {
        let graph_name = name(graph_name)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the text lives during the call.
        unsafe { check(ds_sys::ds_graph_create(graph_name.as_ptr(), i64::try_from(bound).unwrap_or(i64::MAX), &mut raw))? };
        Ok(Graph { raw })
    }

    /// Creates the graph of a configuration's `model` section, for a group of `size` ranks.
    pub fn from_config(config: &str, size: i32) -> Result<Graph> {
        let config = name(config)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the text lives during the call.
        unsafe { check(ds_sys::ds_graph_from_config(config.as_ptr(), size, &mut raw))? };
        Ok(Graph { raw })
    }

    /// Reads the text that [`Graph::print`] writes.
    pub fn parse(text: &str) -> Result<Graph> {
        let text = name(text)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the text lives during the call.
        unsafe { check(ds_sys::ds_graph_parse(text.as_ptr(), &mut raw))? };
        Ok(Graph { raw })
    }

    pub(crate) fn raw_mut(&mut self) -> *mut ds_sys::ds_graph {
        self.raw
    }

    pub(crate) fn raw(&self) -> *const ds_sys::ds_graph {
        self.raw
    }

    /// Adds an input. A dimension of None is n, the number of rows of a micro-step.
    pub fn input<T: Element>(&mut self, input: &str, dims: &[Option<usize>]) -> Result<Value> {
        let input = name(input)?;
        let dims: Vec<i64> = dims.iter().map(|d| d.map_or(-1, |d| dims_of(&[d])[0])).collect();
        let mut out = -1;
        // SAFETY: everything lives during the call.
        unsafe { check(ds_sys::ds_graph_input(self.raw, input.as_ptr(), T::DTYPE, dims.as_ptr(), dims.len(), &mut out))? };
        Ok(Value(out))
    }

    /// Adds an f32 parameter; `init` is "zeros", "ones", "normal" with standard deviation `scale`, or
    /// "uniform" between -`scale` and `scale`.
    pub fn param(&mut self, param: &str, dims: &[usize], init: &str, scale: f64) -> Result<Value> {
        let (param, init) = (name(param)?, name(init)?);
        let dims = dims_of(dims);
        let mut out = -1;
        // SAFETY: everything lives during the call.
        unsafe {
            check(ds_sys::ds_graph_param(self.raw, param.as_ptr(), dims.as_ptr(), dims.len(), init.as_ptr(), scale, &mut out))?;
        }
        Ok(Value(out))
    }

    /// Adds an operation by its name; `attrs` is a JSON object. Returns its first output.
    pub fn op(&mut self, op: &str, inputs: &[Value], attrs: Option<&str>) -> Result<Value> {
        let op = name(op)?;
        let attrs = optional(attrs)?;
        let inputs: Vec<i32> = inputs.iter().map(|v| v.0).collect();
        let mut out = -1;
        // SAFETY: everything lives during the call.
        unsafe {
            let attrs = address(&attrs);
            check(ds_sys::ds_graph_op(self.raw, op.as_ptr(), inputs.as_ptr(), inputs.len(), attrs, &mut out))?;
        }
        Ok(Value(out))
    }

    /// Makes a value the next output: output 0 is the loss, and [`crate::Engine::infer`] returns output 1.
    pub fn output(&mut self, output: &str, value: Value) -> Result<()> {
        let output = name(output)?;
        // SAFETY: the text lives during the call.
        unsafe { check(ds_sys::ds_graph_output(self.raw, output.as_ptr(), value.0)) }
    }

    /// Finds an output, input, parameter or result by name.
    pub fn find(&self, value: &str) -> Result<Value> {
        let value = name(value)?;
        let mut out = -1;
        // SAFETY: everything lives during the call.
        unsafe { check(ds_sys::ds_graph_find(self.raw, value.as_ptr(), &mut out))? };
        Ok(Value(out))
    }

    /// Returns the dimensions of a value; None is n.
    pub fn dims(&self, value: Value) -> Result<Vec<Option<usize>>> {
        let (mut dims, mut count) = ([0i64; 8], 0);
        // SAFETY: the outputs are valid during the call.
        unsafe {
            let at = dims.as_mut_ptr();
            check(ds_sys::ds_graph_value_info(self.raw, value.0, std::ptr::null_mut(), at, dims.len(), &mut count))?;
        }
        Ok(dims[..count].iter().map(|&d| usize::try_from(d).ok()).collect())
    }

    /// Appends the gradients of a scalar for `values` and returns them, with None for a value on which it does not
    /// depend. May be called once per graph. Training does not need this call: a differentiated graph is for printing
    /// and study.
    pub fn grad(&mut self, loss: Value, values: &[Value]) -> Result<Vec<Option<Value>>> {
        let values: Vec<i32> = values.iter().map(|v| v.0).collect();
        let mut out = vec![-1; values.len()];
        // SAFETY: both lists have values.len() numbers.
        unsafe { check(ds_sys::ds_graph_grad(self.raw, loss.0, values.as_ptr(), values.len(), out.as_mut_ptr()))? };
        Ok(out.iter().map(|&v| if v < 0 { None } else { Some(Value(v)) }).collect())
    }

    /// Returns the text form.
    pub fn print(&self) -> Result<String> {
        // SAFETY: the handle lives.
        owned_text(|out| unsafe { ds_sys::ds_graph_print(self.raw, out) })
    }
}

/// The compiled step of a configuration for one rank, without memory and without a group.
pub struct Plan {
    raw: *mut ds_sys::ds_plan,
}

// SAFETY: distinct handles are independent.
unsafe impl Send for Plan {}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle.
        unsafe { ds_sys::ds_plan_destroy(self.raw) }
    }
}

impl Plan {
    pub fn new(config: &str, graph: Option<&Graph>, rank: i32, size: i32) -> Result<Plan> {
        let config = name(config)?;
        let mut raw = std::ptr::null_mut();
        let graph = graph.map_or(std::ptr::null(), Graph::raw);
        // SAFETY: everything lives during the call.
        unsafe { check(ds_sys::ds_plan_create(config.as_ptr(), graph, rank, size, &mut raw))? };
        Ok(Plan { raw })
    }

    /// Reports bytes per tier and kind, instructions, collectives.
    pub fn report(&self, format: Format) -> Result<String> {
        // SAFETY: the handle lives.
        owned_text(|out| unsafe { ds_sys::ds_plan_report(self.raw, format.raw(), out) })
    }
    /// Returns the program of the step in its text form.
    pub fn print(&self) -> Result<String> {
        // SAFETY: the handle lives.
        owned_text(|out| unsafe { ds_sys::ds_plan_print(self.raw, out) })
    }

    /// Draws the work of each queue of these ranks over a step, as an SVG document.
    pub fn picture(plans: &[&Plan]) -> Result<String> {
        let plans: Vec<_> = plans.iter().map(|p| p.raw as *const _).collect();
        // SAFETY: the list and its plans live during the call.
        owned_text(|out| unsafe { ds_sys::ds_plan_picture(plans.as_ptr(), plans.len(), out) })
    }

    /// Returns the certificate of the plans of all ranks, for a checker that shares no code with libds.
    pub fn certificate(plans: &[&Plan]) -> Result<String> {
        let plans: Vec<_> = plans.iter().map(|p| p.raw as *const _).collect();
        // SAFETY: the list and its plans live during the call.
        owned_text(|out| unsafe { ds_sys::ds_plan_certificate(plans.as_ptr(), plans.len(), out) })
    }
}

/// Returns the operations that [`Graph::op`] knows, as JSON (docs/reference/ops.md).
pub fn op_schema() -> Result<String> {
    // SAFETY: out_text is valid for the call.
    owned_text(|out| unsafe { ds_sys::ds_op_schema(out) })
}
