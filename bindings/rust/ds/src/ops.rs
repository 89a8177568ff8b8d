// Written by tools/bindings.py; do not edit.
//! A function for each operation of a [`Graph`]: operands, then attributes, then a structure of those that may be left
//! out. An operation with several results returns them all.
#![allow(clippy::too_many_arguments)]

use crate::{Graph, Result, Value};

/// Attributes as JSON.
#[derive(Default)]
struct Attrs(String);

impl Attrs {
    fn set(&mut self, name: &str, json: &str) {
        self.0 += if self.0.is_empty() { "{" } else { "," };
        self.0 += &format!("\"{}\":{}", name, json);
    }

    fn integer(&mut self, name: &str, value: i64) {
        self.set(name, &value.to_string());
    }

    fn number(&mut self, name: &str, value: f64) {
        self.set(name, &format!("{:e}", value));
    }

    fn text(&mut self, name: &str, value: &str) {
        self.set(name, &format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")));
    }

    fn add(self, graph: &mut Graph, op: &str, operands: &[Value]) -> Result<Value> {
        if self.0.is_empty() {
            return graph.op(op, operands, None);
        }
        graph.op(op, operands, Some(&(self.0 + "}")))
    }
}

fn result(first: Value, place: usize) -> Value {
    Value(first.0 + place as i32)
}

/// Attributes of [`embedding()`] that may be left out.
#[derive(Clone, Copy, Debug)]
pub struct Embedding {
    /// row of w that gets no gradient from this operation; -1: no row
    pub padding: i64,
}

impl Default for Embedding {
    fn default() -> Self {
        Embedding {
            padding: -1,
        }
    }
}

impl Embedding {
    fn put(&self, attrs: &mut Attrs) {
        if self.padding != -1 {
            attrs.integer("padding", self.padding);
        }
    }
}

/// The rows of a table that ids name.
///
/// - `w`: T\[V,C\], a row for each word
/// - `ids`: i32\[n\], words, 0 to V-1
///
/// Returns `y` T\[n,C\], a row for each id
pub fn embedding(graph: &mut Graph, w: Value, ids: Value, options: &Embedding) -> Result<Value> {
    let mut attrs = Attrs::default();
    options.put(&mut attrs);
    attrs.add(graph, "embedding", &[w, ids])
}

/// Attributes of [`embedding_dw()`] that may be left out.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddingDw {
    /// row of w that gets no gradient from this operation; -1: no row
    pub padding: i64,
}

impl Default for EmbeddingDw {
    fn default() -> Self {
        EmbeddingDw {
            padding: -1,
        }
    }
}

impl EmbeddingDw {
    fn put(&self, attrs: &mut Attrs) {
        if self.padding != -1 {
            attrs.integer("padding", self.padding);
        }
    }
}

/// The gradient of the table of an embedding: the sum of the rows of dy by id, in row order in A. Not differentiable.
///
/// - `dy`: T\[n,C\], gradient of the result
/// - `ids`: i32\[n\], words, 0 to V-1
/// - `rows`: V
///
/// Returns `dw` T\[V,C\], gradient of w
pub fn embedding_dw(graph: &mut Graph, dy: Value, ids: Value, rows: i64, options: &EmbeddingDw) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.integer("rows", rows);
    options.put(&mut attrs);
    attrs.add(graph, "embedding_dw", &[dy, ids])
}

/// Adds to each row the row of a table for its position in the sequence: y\[r\] = x\[r\] + w\[r mod seq\].
///
/// - `x`: T\[n,C\], rows
/// - `w`: T\[P,C\], a row for each position
/// - `seq`: rows of a sequence, at most P
///
/// Returns `y` T\[n,C\], sums
pub fn position(graph: &mut Graph, x: Value, w: Value, seq: i64) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.integer("seq", seq);
    attrs.add(graph, "position", &[x, w])
}

/// The gradient of the table of a position; rows from seq on are 0. Not differentiable.
///
/// - `dy`: T\[n,C\], gradient of the result
/// - `seq`: rows of a sequence, at most P
/// - `rows`: P
///
/// Returns `dw` T\[P,C\], gradient of w
pub fn position_dw(graph: &mut Graph, dy: Value, seq: i64, rows: i64) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.integer("seq", seq);
    attrs.integer("rows", rows);
    attrs.add(graph, "position_dw", &[dy])
}

/// The last row. Not differentiable.
///
/// - `x`: T\[n,C\], rows
///
/// Returns `y` T\[1,C\], x\[n-1\]
pub fn last_row(graph: &mut Graph, x: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "last_row", &[x])
}

/// Attributes of [`linear()`] that may be left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linear {
    /// 1: the weight is stored as T\[I,O\]
    pub transposed: bool,
}

impl Linear {
    fn put(&self, attrs: &mut Attrs) {
        if self.transposed {
            attrs.integer("transposed", i64::from(self.transposed));
        }
    }
}

/// The product x w^T of rows and a weight, plus a bias if given.
///
/// - `x`: T\[n,I\], rows
/// - `w`: T\[O,I\], weight
/// - `b`: T\[O\], bias
///
/// Returns `y` T\[n,O\], products
pub fn linear(graph: &mut Graph, x: Value, w: Value, b: Option<Value>, options: &Linear) -> Result<Value> {
    let mut operands = vec![x, w];
    operands.extend(b);
    let mut attrs = Attrs::default();
    options.put(&mut attrs);
    attrs.add(graph, "linear", &operands)
}

/// Attributes of [`linear_dx()`] that may be left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinearDx {
    /// 1: the weight is stored as T\[I,O\]
    pub transposed: bool,
}

impl LinearDx {
    fn put(&self, attrs: &mut Attrs) {
        if self.transposed {
            attrs.integer("transposed", i64::from(self.transposed));
        }
    }
}

/// The gradient dy w of the rows of a linear. Not differentiable.
///
/// - `dy`: T\[n,O\], gradient of the result
/// - `w`: T\[O,I\], weight
///
/// Returns `dx` T\[n,I\], gradient of x
pub fn linear_dx(graph: &mut Graph, dy: Value, w: Value, options: &LinearDx) -> Result<Value> {
    let mut attrs = Attrs::default();
    options.put(&mut attrs);
    attrs.add(graph, "linear_dx", &[dy, w])
}

/// Attributes of [`linear_dw()`] that may be left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinearDw {
    /// 1: the weight is stored as T\[I,O\]
    pub transposed: bool,
}

impl LinearDw {
    fn put(&self, attrs: &mut Attrs) {
        if self.transposed {
            attrs.integer("transposed", i64::from(self.transposed));
        }
    }
}

/// The gradient dy^T x of the weight of a linear. Not differentiable.
///
/// - `dy`: T\[n,O\], gradient of the result
/// - `x`: T\[n,I\], rows
///
/// Returns `dw` T\[O,I\], gradient of w
pub fn linear_dw(graph: &mut Graph, dy: Value, x: Value, options: &LinearDw) -> Result<Value> {
    let mut attrs = Attrs::default();
    options.put(&mut attrs);
    attrs.add(graph, "linear_dw", &[dy, x])
}

/// The gradient of the bias of a linear: the sum of each column. Not differentiable.
///
/// - `dy`: T\[n,O\], gradient of the result
///
/// Returns `db` T\[O\], gradient of b
pub fn linear_db(graph: &mut Graph, dy: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "linear_db", &[dy])
}

/// Normalized rows (x - mean) rstd w + b; w and b are given together or left out, which means 1 and 0.
///
/// - `x`: T\[n,C\], rows
/// - `w`: T\[C\], weight
/// - `b`: T\[C\], bias
/// - `eps`: added to the variance or mean square before its square root, > 0
///
/// Returns `y` T\[n,C\], normalized rows; `mean` A\[n\], mean of each row; `rstd` A\[n\], 1 / sqrt(variance + eps) of
/// each row
pub fn layer_norm(graph: &mut Graph, x: Value, w: Option<Value>, b: Option<Value>, eps: f64) -> Result<(Value, Value,
    Value)> {
    let mut operands = vec![x];
    operands.extend(w);
    operands.extend(b);
    let mut attrs = Attrs::default();
    attrs.number("eps", eps);
    let first = attrs.add(graph, "layer_norm", &operands)?;
    Ok((result(first, 0), result(first, 1), result(first, 2)))
}

/// The gradient of the rows of a layer_norm. Not differentiable.
///
/// - `dy`: T\[n,C\], gradient of the result
/// - `x`: T\[n,C\], rows
/// - `w`: T\[C\], weight
/// - `mean`: A\[n\], mean of each row
/// - `rstd`: A\[n\], 1 / sqrt(variance + eps) of each row
///
/// Returns `dx` T\[n,C\], gradient of x
pub fn layer_norm_dx(graph: &mut Graph, dy: Value, x: Value, w: Option<Value>, mean: Value, rstd: Value) ->
    Result<Value> {
    let mut operands = vec![dy, x];
    operands.extend(w);
    operands.push(mean);
    operands.push(rstd);
    let attrs = Attrs::default();
    attrs.add(graph, "layer_norm_dx", &operands)
}

/// The gradients of weight and bias of a layer_norm. Not differentiable.
///
/// - `dy`: T\[n,C\], gradient of the result
/// - `x`: T\[n,C\], rows
/// - `mean`: A\[n\], mean of each row
/// - `rstd`: A\[n\], 1 / sqrt(variance + eps) of each row
///
/// Returns `dw` T\[C\], gradient of w; `db` T\[C\], gradient of b
pub fn layer_norm_dw(graph: &mut Graph, dy: Value, x: Value, mean: Value, rstd: Value) -> Result<(Value, Value)> {
    let attrs = Attrs::default();
    let first = attrs.add(graph, "layer_norm_dw", &[dy, x, mean, rstd])?;
    Ok((result(first, 0), result(first, 1)))
}

/// Attributes of [`rms_norm()`] that may be left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct RmsNorm {
    /// 1: w + 1 in place of w
    pub offset: bool,
}

impl RmsNorm {
    fn put(&self, attrs: &mut Attrs) {
        if self.offset {
            attrs.integer("offset", i64::from(self.offset));
        }
    }
}

/// Normalizes each run of D columns by itself: x rstd w. With D = C the runs are whole rows; with the width of a head
/// they are the heads of q or k.
///
/// - `x`: T\[n,C\], rows
/// - `w`: T\[D\], weight; D divides C
/// - `eps`: added to the variance or mean square before its square root, > 0
///
/// Returns `y` T\[n,C\], normalized rows; `rstd` A\[n,C/D\], 1 / sqrt(mean of x^2 + eps) of each run
pub fn rms_norm(graph: &mut Graph, x: Value, w: Value, eps: f64, options: &RmsNorm) -> Result<(Value, Value)> {
    let mut attrs = Attrs::default();
    attrs.number("eps", eps);
    options.put(&mut attrs);
    let first = attrs.add(graph, "rms_norm", &[x, w])?;
    Ok((result(first, 0), result(first, 1)))
}

/// Attributes of [`rms_norm_dx()`] that may be left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct RmsNormDx {
    /// 1: w + 1 in place of w
    pub offset: bool,
}

impl RmsNormDx {
    fn put(&self, attrs: &mut Attrs) {
        if self.offset {
            attrs.integer("offset", i64::from(self.offset));
        }
    }
}

/// The gradient of the rows of an rms_norm. Not differentiable.
///
/// - `dy`: T\[n,C\], gradient of the result
/// - `x`: T\[n,C\], rows
/// - `w`: T\[D\], weight; D divides C
/// - `rstd`: A\[n,C/D\], 1 / sqrt(mean of x^2 + eps) of each run
///
/// Returns `dx` T\[n,C\], gradient of x
pub fn rms_norm_dx(graph: &mut Graph, dy: Value, x: Value, w: Value, rstd: Value, options: &RmsNormDx) -> Result<Value>
    {
    let mut attrs = Attrs::default();
    options.put(&mut attrs);
    attrs.add(graph, "rms_norm_dx", &[dy, x, w, rstd])
}

/// The gradient of the weight of an rms_norm, for any offset: the sum of dy x rstd over rows and runs. Not
/// differentiable.
///
/// - `dy`: T\[n,C\], gradient of the result
/// - `x`: T\[n,C\], rows
/// - `rstd`: A\[n,C/D\], 1 / sqrt(mean of x^2 + eps) of each run
/// - `width`: D
///
/// Returns `dw` T\[D\], gradient of w
pub fn rms_norm_dw(graph: &mut Graph, dy: Value, x: Value, rstd: Value, width: i64) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.integer("width", width);
    attrs.add(graph, "rms_norm_dw", &[dy, x, rstd])
}

/// Attributes of [`gelu()`] that may be left out.
#[derive(Clone, Copy, Debug)]
pub struct Gelu<'a> {
    /// tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); erf: 0.5 x (1 + erf(x/sqrt(2))); 10: as erf, but at most
    /// 10 (tanh, erf, 10)
    pub form: &'a str,
}

impl Default for Gelu<'_> {
    fn default() -> Self {
        Gelu {
            form: "tanh",
        }
    }
}

impl Gelu<'_> {
    fn put(&self, attrs: &mut Attrs) {
        if self.form != "tanh" {
            attrs.text("form", self.form);
        }
    }
}

/// The activation x Phi(x), Phi the distribution function of normal numbers, of each element.
///
/// - `x`: T\[any\], any tensor
///
/// Returns `y` T\[any\], activations
pub fn gelu(graph: &mut Graph, x: Value, options: &Gelu) -> Result<Value> {
    let mut attrs = Attrs::default();
    options.put(&mut attrs);
    attrs.add(graph, "gelu", &[x])
}

/// Attributes of [`gelu_dx()`] that may be left out.
#[derive(Clone, Copy, Debug)]
pub struct GeluDx<'a> {
    /// tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); erf: 0.5 x (1 + erf(x/sqrt(2))); 10: as erf, but at most
    /// 10 (tanh, erf, 10)
    pub form: &'a str,
}

impl Default for GeluDx<'_> {
    fn default() -> Self {
        GeluDx {
            form: "tanh",
        }
    }
}

impl GeluDx<'_> {
    fn put(&self, attrs: &mut Attrs) {
        if self.form != "tanh" {
            attrs.text("form", self.form);
        }
    }
}

/// The gradient of the activation gelu. Not differentiable.
///
/// - `dy`: T\[any\], gradient of the result
/// - `x`: T\[any\], any tensor
///
/// Returns `dx` T\[any\], gradient of x
pub fn gelu_dx(graph: &mut Graph, dy: Value, x: Value, options: &GeluDx) -> Result<Value> {
    let mut attrs = Attrs::default();
    options.put(&mut attrs);
    attrs.add(graph, "gelu_dx", &[dy, x])
}

/// The activation max(x, 0) of each element.
///
/// - `x`: T\[any\], any tensor
///
/// Returns `y` T\[any\], activations
pub fn relu(graph: &mut Graph, x: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "relu", &[x])
}

/// The gradient of the activation relu. Not differentiable.
///
/// - `dy`: T\[any\], gradient of the result
/// - `x`: T\[any\], any tensor
///
/// Returns `dx` T\[any\], gradient of x
pub fn relu_dx(graph: &mut Graph, dy: Value, x: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "relu_dx", &[dy, x])
}

/// The activation x / (1 + exp(-x)) of each element.
///
/// - `x`: T\[any\], any tensor
///
/// Returns `y` T\[any\], activations
pub fn silu(graph: &mut Graph, x: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "silu", &[x])
}

/// The gradient of the activation silu. Not differentiable.
///
/// - `dy`: T\[any\], gradient of the result
/// - `x`: T\[any\], any tensor
///
/// Returns `dx` T\[any\], gradient of x
pub fn silu_dx(graph: &mut Graph, dy: Value, x: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "silu_dx", &[dy, x])
}

/// The activation tanh(x) of each element.
///
/// - `x`: T\[any\], any tensor
///
/// Returns `y` T\[any\], activations
pub fn tanh(graph: &mut Graph, x: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "tanh", &[x])
}

/// The gradient of the activation tanh. Not differentiable.
///
/// - `dy`: T\[any\], gradient of the result
/// - `x`: T\[any\], any tensor
///
/// Returns `dx` T\[any\], gradient of x
pub fn tanh_dx(graph: &mut Graph, dy: Value, x: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "tanh_dx", &[dy, x])
}

/// The activation max(x, 0)^2 of each element.
///
/// - `x`: T\[any\], any tensor
///
/// Returns `y` T\[any\], activations
pub fn relu2(graph: &mut Graph, x: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "relu2", &[x])
}

/// The gradient of the activation relu2. Not differentiable.
///
/// - `dy`: T\[any\], gradient of the result
/// - `x`: T\[any\], any tensor
///
/// Returns `dx` T\[any\], gradient of x
pub fn relu2_dx(graph: &mut Graph, dy: Value, x: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "relu2_dx", &[dy, x])
}

/// The activation 1 / (1 + exp(-x)) of each element.
///
/// - `x`: T\[any\], any tensor
///
/// Returns `y` T\[any\], activations
pub fn sigmoid(graph: &mut Graph, x: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "sigmoid", &[x])
}

/// The gradient of the activation sigmoid. Not differentiable.
///
/// - `dy`: T\[any\], gradient of the result
/// - `x`: T\[any\], any tensor
///
/// Returns `dx` T\[any\], gradient of x
pub fn sigmoid_dx(graph: &mut Graph, dy: Value, x: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "sigmoid_dx", &[dy, x])
}

/// The activation x / (1 + exp(-1.702 x)) of each element.
///
/// - `x`: T\[any\], any tensor
///
/// Returns `y` T\[any\], activations
pub fn quick_gelu(graph: &mut Graph, x: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "quick_gelu", &[x])
}

/// The gradient of the activation quick_gelu. Not differentiable.
///
/// - `dy`: T\[any\], gradient of the result
/// - `x`: T\[any\], any tensor
///
/// Returns `dx` T\[any\], gradient of x
pub fn quick_gelu_dx(graph: &mut Graph, dy: Value, x: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "quick_gelu_dx", &[dy, x])
}

/// The activation log(1 + exp(x)) of each element.
///
/// - `x`: T\[any\], any tensor
///
/// Returns `y` T\[any\], activations
pub fn softplus(graph: &mut Graph, x: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "softplus", &[x])
}

/// The gradient of the activation softplus. Not differentiable.
///
/// - `dy`: T\[any\], gradient of the result
/// - `x`: T\[any\], any tensor
///
/// Returns `dx` T\[any\], gradient of x
pub fn softplus_dx(graph: &mut Graph, dy: Value, x: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "softplus_dx", &[dy, x])
}

/// The activation 0.5 (1 + erf((x - 0.707107) / (0.282095 sqrt(2)))) of each element.
///
/// - `x`: T\[any\], any tensor
///
/// Returns `y` T\[any\], activations
pub fn laplace(graph: &mut Graph, x: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "laplace", &[x])
}

/// The gradient of the activation laplace. Not differentiable.
///
/// - `dy`: T\[any\], gradient of the result
/// - `x`: T\[any\], any tensor
///
/// Returns `dx` T\[any\], gradient of x
pub fn laplace_dx(graph: &mut Graph, dy: Value, x: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "laplace_dx", &[dy, x])
}

/// A gated linear unit act(gate) up, rounded once.
///
/// - `gate`: T\[n,F\], the operand that is activated
/// - `up`: T\[n,F\], the operand that is gated
/// - `act`: the activation: gelu_tanh, gelu_erf and gelu_10 are the forms of gelu, others are operations (silu,
///   gelu_tanh, gelu_erf, gelu_10, relu, tanh, relu2, laplace, sigmoid, quick_gelu, softplus)
///
/// Returns `y` T\[n,F\], act(gate) up
pub fn glu(graph: &mut Graph, gate: Value, up: Value, act: &str) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.text("act", act);
    attrs.add(graph, "glu", &[gate, up])
}

/// A gated linear unit act(gate) up, rounded once.
///
/// - `x`: T\[n,2F\], gate and up, side by side
/// - `act`: the activation: gelu_tanh, gelu_erf and gelu_10 are the forms of gelu, others are operations (silu,
///   gelu_tanh, gelu_erf, gelu_10, relu, tanh, relu2, laplace, sigmoid, quick_gelu, softplus)
///
/// Returns `y` T\[n,F\], act(gate) up
pub fn glu_packed(graph: &mut Graph, x: Value, act: &str) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.text("act", act);
    attrs.add(graph, "glu", &[x])
}

/// The gradients of a glu. Not differentiable.
///
/// - `dy`: T\[n,F\], gradient of the result
/// - `gate`: T\[n,F\], the operand that is activated
/// - `up`: T\[n,F\], the operand that is gated
/// - `act`: the activation: gelu_tanh, gelu_erf and gelu_10 are the forms of gelu, others are operations (silu,
///   gelu_tanh, gelu_erf, gelu_10, relu, tanh, relu2, laplace, sigmoid, quick_gelu, softplus)
///
/// Returns `dgate` T\[n,F\], gradient of gate; `dup` T\[n,F\], gradient of up
pub fn glu_dx(graph: &mut Graph, dy: Value, gate: Value, up: Value, act: &str) -> Result<(Value, Value)> {
    let mut attrs = Attrs::default();
    attrs.text("act", act);
    let first = attrs.add(graph, "glu_dx", &[dy, gate, up])?;
    Ok((result(first, 0), result(first, 1)))
}

/// The gradients of a glu. Not differentiable.
///
/// - `dy`: T\[n,F\], gradient of the result
/// - `x`: T\[n,2F\], gate and up, side by side
/// - `act`: the activation: gelu_tanh, gelu_erf and gelu_10 are the forms of gelu, others are operations (silu,
///   gelu_tanh, gelu_erf, gelu_10, relu, tanh, relu2, laplace, sigmoid, quick_gelu, softplus)
///
/// Returns `dx` T\[n,2F\], gradient of x
pub fn glu_dx_packed(graph: &mut Graph, dy: Value, x: Value, act: &str) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.text("act", act);
    attrs.add(graph, "glu_dx", &[dy, x])
}

/// The product of two tensors of one shape, element by element.
///
/// - `a`: T\[any\], first factor
/// - `b`: T\[any\], second factor
///
/// Returns `y` T\[any\], a b
pub fn mul(graph: &mut Graph, a: Value, b: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "mul", &[a, b])
}

/// A tensor times a number, which is rounded to A first. Its gradient is the same operation.
///
/// - `x`: T\[any\], any tensor
/// - `factor`: the number
///
/// Returns `y` T\[any\], x factor
pub fn scale(graph: &mut Graph, x: Value, factor: f64) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.number("factor", factor);
    attrs.add(graph, "scale", &[x])
}

/// Values bounded smoothly: cap tanh(x / cap).
///
/// - `x`: T\[any\], any tensor
/// - `cap`: the bound, > 0
///
/// Returns `y` T\[any\], bounded values
pub fn softcap(graph: &mut Graph, x: Value, cap: f64) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.number("cap", cap);
    attrs.add(graph, "softcap", &[x])
}

/// The gradient dy (1 - (y / cap)^2) of a softcap. Not differentiable.
///
/// - `dy`: T\[any\], gradient of the result
/// - `y`: T\[any\], the result
/// - `cap`: the bound, > 0
///
/// Returns `dx` T\[any\], gradient of x
pub fn softcap_dx(graph: &mut Graph, dy: Value, y: Value, cap: f64) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.number("cap", cap);
    attrs.add(graph, "softcap_dx", &[dy, y])
}

/// Attributes of [`attention()`] that may be left out.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// G, heads of keys and values, a divisor of H; 0: H heads
    pub kv_heads: i64,
    /// 1: a row sees itself and rows before it, 0: its whole sequence
    pub causal: bool,
    /// number of rows that a row sees, itself included; 0: all; only for causal attention
    pub window: i64,
    /// factor of scores; 0: 1/sqrt(D)
    pub scale: f64,
    /// bound of scores; 0: none
    pub softcap: f64,
    /// 1: qkv is q, k, v of head 0, then of head 1 and so on
    pub per_head: bool,
    /// probability of dropping a weight in a training step, in \[0, 1)
    pub dropout: f64,
    /// number of the random stream of dropout, 0 to 65535; needed with dropout
    pub op: Option<i64>,
    /// 1: mask is begin, which holds for each row the first row of its document. Documents follow one another, each at
    /// most seq rows long; a row sees only its own document
    pub documents: bool,
}

impl Default for Attention {
    fn default() -> Self {
        Attention {
            kv_heads: 0,
            causal: true,
            window: 0,
            scale: 0.0,
            softcap: 0.0,
            per_head: false,
            dropout: 0.0,
            op: None,
            documents: false,
        }
    }
}

impl Attention {
    fn put(&self, attrs: &mut Attrs) {
        if self.kv_heads != 0 {
            attrs.integer("kv_heads", self.kv_heads);
        }
        if !self.causal {
            attrs.integer("causal", i64::from(self.causal));
        }
        if self.window != 0 {
            attrs.integer("window", self.window);
        }
        if self.scale != 0.0 {
            attrs.number("scale", self.scale);
        }
        if self.softcap != 0.0 {
            attrs.number("softcap", self.softcap);
        }
        if self.per_head {
            attrs.integer("per_head", i64::from(self.per_head));
        }
        if self.dropout != 0.0 {
            attrs.number("dropout", self.dropout);
        }
        if let Some(value) = self.op {
            attrs.integer("op", value);
        }
        if self.documents {
            attrs.integer("documents", i64::from(self.documents));
        }
    }
}

/// Attention within sequences: softmax(scores) v for each row and head.
///
/// - `q`: T\[n,HD\], queries of H heads
/// - `k`: T\[n,GD\], keys of G heads
/// - `v`: T\[n,GD\], values of G heads
/// - `mask`: i32\[n\], rows where it is 0 are seen by no row; with documents it is begin
/// - `heads`: H, heads of queries
/// - `seq`: rows of a sequence
///
/// Returns `y` T\[n,HD\], weighted sums of values; `lse` A\[H,n\], logarithm of the sum of exp of the scores
pub fn attention(graph: &mut Graph, q: Value, k: Value, v: Value, mask: Option<Value>, heads: i64, seq: i64, options:
    &Attention) -> Result<(Value, Value)> {
    let mut operands = vec![q, k, v];
    operands.extend(mask);
    let mut attrs = Attrs::default();
    attrs.integer("heads", heads);
    attrs.integer("seq", seq);
    options.put(&mut attrs);
    let first = attrs.add(graph, "attention", &operands)?;
    Ok((result(first, 0), result(first, 1)))
}

/// Attention within sequences: softmax(scores) v for each row and head.
///
/// - `qkv`: T\[n,(H+2G)D\], queries, keys and values, side by side
/// - `mask`: i32\[n\], rows where it is 0 are seen by no row; with documents it is begin
/// - `heads`: H, heads of queries
/// - `seq`: rows of a sequence
///
/// Returns `y` T\[n,HD\], weighted sums of values; `lse` A\[H,n\], logarithm of the sum of exp of the scores
pub fn attention_packed(graph: &mut Graph, qkv: Value, mask: Option<Value>, heads: i64, seq: i64, options: &Attention)
    -> Result<(Value, Value)> {
    let mut operands = vec![qkv];
    operands.extend(mask);
    let mut attrs = Attrs::default();
    attrs.integer("heads", heads);
    attrs.integer("seq", seq);
    options.put(&mut attrs);
    let first = attrs.add(graph, "attention", &operands)?;
    Ok((result(first, 0), result(first, 1)))
}

/// Attributes of [`attention_dx()`] that may be left out.
#[derive(Clone, Copy, Debug)]
pub struct AttentionDx {
    /// G, heads of keys and values, a divisor of H; 0: H heads
    pub kv_heads: i64,
    /// 1: a row sees itself and rows before it, 0: its whole sequence
    pub causal: bool,
    /// number of rows that a row sees, itself included; 0: all; only for causal attention
    pub window: i64,
    /// factor of scores; 0: 1/sqrt(D)
    pub scale: f64,
    /// bound of scores; 0: none
    pub softcap: f64,
    /// 1: qkv is q, k, v of head 0, then of head 1 and so on
    pub per_head: bool,
    /// probability of dropping a weight in a training step, in \[0, 1)
    pub dropout: f64,
    /// number of the random stream of dropout, 0 to 65535; needed with dropout
    pub op: Option<i64>,
    /// 1: mask is begin, which holds for each row the first row of its document. Documents follow one another, each at
    /// most seq rows long; a row sees only its own document
    pub documents: bool,
}

impl Default for AttentionDx {
    fn default() -> Self {
        AttentionDx {
            kv_heads: 0,
            causal: true,
            window: 0,
            scale: 0.0,
            softcap: 0.0,
            per_head: false,
            dropout: 0.0,
            op: None,
            documents: false,
        }
    }
}

impl AttentionDx {
    fn put(&self, attrs: &mut Attrs) {
        if self.kv_heads != 0 {
            attrs.integer("kv_heads", self.kv_heads);
        }
        if !self.causal {
            attrs.integer("causal", i64::from(self.causal));
        }
        if self.window != 0 {
            attrs.integer("window", self.window);
        }
        if self.scale != 0.0 {
            attrs.number("scale", self.scale);
        }
        if self.softcap != 0.0 {
            attrs.number("softcap", self.softcap);
        }
        if self.per_head {
            attrs.integer("per_head", i64::from(self.per_head));
        }
        if self.dropout != 0.0 {
            attrs.number("dropout", self.dropout);
        }
        if let Some(value) = self.op {
            attrs.integer("op", value);
        }
        if self.documents {
            attrs.integer("documents", i64::from(self.documents));
        }
    }
}

/// The gradients of an attention. Not differentiable.
///
/// - `dy`: T\[n,HD\], gradient of y
/// - `q`: T\[n,HD\], queries of H heads
/// - `k`: T\[n,GD\], keys of G heads
/// - `v`: T\[n,GD\], values of G heads
/// - `mask`: i32\[n\], rows where it is 0 are seen by no row; with documents it is begin
/// - `y`: T\[n,HD\], weighted sums of values
/// - `lse`: A\[H,n\], logarithm of the sum of exp of the scores
/// - `heads`: H, heads of queries
/// - `seq`: rows of a sequence
///
/// Returns `dq` T\[n,HD\], gradient of q; `dk` T\[n,GD\], gradient of k; `dv` T\[n,GD\], gradient of v
pub fn attention_dx(graph: &mut Graph, dy: Value, q: Value, k: Value, v: Value, mask: Option<Value>, y: Value, lse:
    Value, heads: i64, seq: i64, options: &AttentionDx) -> Result<(Value, Value, Value)> {
    let mut operands = vec![dy, q, k, v];
    operands.extend(mask);
    operands.push(y);
    operands.push(lse);
    let mut attrs = Attrs::default();
    attrs.integer("heads", heads);
    attrs.integer("seq", seq);
    options.put(&mut attrs);
    let first = attrs.add(graph, "attention_dx", &operands)?;
    Ok((result(first, 0), result(first, 1), result(first, 2)))
}

/// The gradients of an attention. Not differentiable.
///
/// - `dy`: T\[n,HD\], gradient of y
/// - `qkv`: T\[n,(H+2G)D\], queries, keys and values, side by side
/// - `mask`: i32\[n\], rows where it is 0 are seen by no row; with documents it is begin
/// - `y`: T\[n,HD\], weighted sums of values
/// - `lse`: A\[H,n\], logarithm of the sum of exp of the scores
/// - `heads`: H, heads of queries
/// - `seq`: rows of a sequence
///
/// Returns `dqkv` T\[n,(H+2G)D\], gradient of qkv
pub fn attention_dx_packed(graph: &mut Graph, dy: Value, qkv: Value, mask: Option<Value>, y: Value, lse: Value, heads:
    i64, seq: i64, options: &AttentionDx) -> Result<Value> {
    let mut operands = vec![dy, qkv];
    operands.extend(mask);
    operands.push(y);
    operands.push(lse);
    let mut attrs = Attrs::default();
    attrs.integer("heads", heads);
    attrs.integer("seq", seq);
    options.put(&mut attrs);
    attrs.add(graph, "attention_dx", &operands)
}

/// Attributes of [`cached_attention()`] that may be left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct CachedAttention {
    /// G, heads of keys and values, a divisor of H; 0: H heads
    pub kv_heads: i64,
    /// number of rows that a row sees, itself included; 0: all; only for causal attention
    pub window: i64,
    /// factor of scores; 0: 1/sqrt(D)
    pub scale: f64,
    /// bound of scores; 0: none
    pub softcap: f64,
    /// 1: qkv is q, k, v of head 0, then of head 1 and so on
    pub per_head: bool,
}

impl CachedAttention {
    fn put(&self, attrs: &mut Attrs) {
        if self.kv_heads != 0 {
            attrs.integer("kv_heads", self.kv_heads);
        }
        if self.window != 0 {
            attrs.integer("window", self.window);
        }
        if self.scale != 0.0 {
            attrs.number("scale", self.scale);
        }
        if self.softcap != 0.0 {
            attrs.number("softcap", self.softcap);
        }
        if self.per_head {
            attrs.integer("per_head", i64::from(self.per_head));
        }
    }
}

/// Causal attention of some rows of a text to all rows so far: writes their keys and values to the cache, then reads
/// the cache. Not differentiable.
///
/// - `q`: T\[n,HD\], queries of H heads
/// - `k`: T\[n,GD\], keys of G heads
/// - `v`: T\[n,GD\], values of G heads
/// - `positions`: i32\[n\], position of each row in the text, below P; all are different
/// - `cache`: T\[2G,P,D\], keys, then values, of the P positions of a text
/// - `heads`: H, heads of queries
///
/// Returns `y` T\[n,HD\], weighted sums of values; `cache` T\[2G,P,D\], keys, then values, of the P positions of a text
pub fn cached_attention(graph: &mut Graph, q: Value, k: Value, v: Value, positions: Value, cache: Value, heads: i64,
    options: &CachedAttention) -> Result<(Value, Value)> {
    let mut attrs = Attrs::default();
    attrs.integer("heads", heads);
    options.put(&mut attrs);
    let first = attrs.add(graph, "cached_attention", &[q, k, v, positions, cache])?;
    Ok((result(first, 0), result(first, 1)))
}

/// Causal attention of some rows of a text to all rows so far: writes their keys and values to the cache, then reads
/// the cache. Not differentiable.
///
/// - `qkv`: T\[n,(H+2G)D\], queries, keys and values, side by side
/// - `positions`: i32\[n\], position of each row in the text, below P; all are different
/// - `cache`: T\[2G,P,D\], keys, then values, of the P positions of a text
/// - `heads`: H, heads of queries
///
/// Returns `y` T\[n,HD\], weighted sums of values; `cache` T\[2G,P,D\], keys, then values, of the P positions of a text
pub fn cached_attention_packed(graph: &mut Graph, qkv: Value, positions: Value, cache: Value, heads: i64, options:
    &CachedAttention) -> Result<(Value, Value)> {
    let mut attrs = Attrs::default();
    attrs.integer("heads", heads);
    options.put(&mut attrs);
    let first = attrs.add(graph, "cached_attention", &[qkv, positions, cache])?;
    Ok((result(first, 0), result(first, 1)))
}

/// Attributes of [`rope()`] that may be left out.
#[derive(Clone, Copy, Debug)]
pub struct Rope<'a> {
    /// columns of a head that are rotated; 0: all
    pub dims: i64,
    /// a head is rotated if its number modulo period is below rotated; heads if absent
    pub period: Option<i64>,
    /// see period; period if absent
    pub rotated: Option<i64>,
    /// 1: the columns of a pair are neighbours; 0: they are dims/2 apart
    pub interleaved: bool,
    /// 1: rotates by the opposite angles
    pub inverse: bool,
    /// how angles are changed for longer texts (none, linear, dynamic, llama3, yarn, longrope)
    pub scaling: &'a str,
    /// for every scaling except none and longrope, > 0
    pub factor: Option<f64>,
    /// for llama3 and yarn, > 0
    pub low: Option<f64>,
    /// for llama3 and yarn, > 0
    pub high: Option<f64>,
    /// length of texts before scaling; for dynamic, llama3 and yarn, and for longrope with long_factors
    pub original: Option<i64>,
    /// for dynamic
    pub power: Option<f64>,
    /// for longrope: dims/2 numbers > 0 with blanks between them
    pub factors: Option<&'a str>,
    /// for longrope: factors for texts longer than original
    pub long_factors: Option<&'a str>,
    /// factor of the result; 0: the factor that the scaling defines
    pub magnitude: f64,
    /// for yarn: 1 rounds the first and the last scaled pair to whole ones
    pub truncate: bool,
}

impl Default for Rope<'_> {
    fn default() -> Self {
        Rope {
            dims: 0,
            period: None,
            rotated: None,
            interleaved: false,
            inverse: false,
            scaling: "none",
            factor: None,
            low: None,
            high: None,
            original: None,
            power: None,
            factors: None,
            long_factors: None,
            magnitude: 0.0,
            truncate: true,
        }
    }
}

impl Rope<'_> {
    fn put(&self, attrs: &mut Attrs) {
        if self.dims != 0 {
            attrs.integer("dims", self.dims);
        }
        if let Some(value) = self.period {
            attrs.integer("period", value);
        }
        if let Some(value) = self.rotated {
            attrs.integer("rotated", value);
        }
        if self.interleaved {
            attrs.integer("interleaved", i64::from(self.interleaved));
        }
        if self.inverse {
            attrs.integer("inverse", i64::from(self.inverse));
        }
        if self.scaling != "none" {
            attrs.text("scaling", self.scaling);
        }
        if let Some(value) = self.factor {
            attrs.number("factor", value);
        }
        if let Some(value) = self.low {
            attrs.number("low", value);
        }
        if let Some(value) = self.high {
            attrs.number("high", value);
        }
        if let Some(value) = self.original {
            attrs.integer("original", value);
        }
        if let Some(value) = self.power {
            attrs.number("power", value);
        }
        if let Some(value) = self.factors {
            attrs.text("factors", value);
        }
        if let Some(value) = self.long_factors {
            attrs.text("long_factors", value);
        }
        if self.magnitude != 0.0 {
            attrs.number("magnitude", self.magnitude);
        }
        if !self.truncate {
            attrs.integer("truncate", i64::from(self.truncate));
        }
    }
}

/// Rotary positions: rotates pairs of columns of each head by angles that grow with the position of the row.
///
/// - `x`: T\[n,H*D\], rows of H heads
/// - `positions`: i32\[n\], position of each row; r mod seq if absent
/// - `length`: i32\[1\], length of the text; seq if absent
/// - `heads`: H
/// - `seq`: rows of a sequence
/// - `theta`: base of the angles, > 1
///
/// Returns `y` T\[n,H*D\], rotated rows
pub fn rope(graph: &mut Graph, x: Value, positions: Option<Value>, length: Option<Value>, heads: i64, seq: i64, theta:
    f64, options: &Rope) -> Result<Value> {
    let mut operands = vec![x];
    operands.extend(positions);
    operands.extend(length);
    let mut attrs = Attrs::default();
    attrs.integer("heads", heads);
    attrs.integer("seq", seq);
    attrs.number("theta", theta);
    options.put(&mut attrs);
    attrs.add(graph, "rope", &operands)
}

/// Attributes of [`softmax()`] that may be left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Softmax {
    /// 1: the logarithm of the softmax
    pub log: bool,
}

impl Softmax {
    fn put(&self, attrs: &mut Attrs) {
        if self.log {
            attrs.integer("log", i64::from(self.log));
        }
    }
}

/// The softmax exp(x) / sum exp(x) of each row, or its logarithm.
///
/// - `x`: T\[n,C\], rows
///
/// Returns `y` T\[n,C\], a distribution for each row
pub fn softmax(graph: &mut Graph, x: Value, options: &Softmax) -> Result<Value> {
    let mut attrs = Attrs::default();
    options.put(&mut attrs);
    attrs.add(graph, "softmax", &[x])
}

/// The softmax of the columns 0 to r mod seq of each row r; the other columns are 0.
///
/// - `x`: T\[n,C\], rows
/// - `seq`: rows of a sequence
///
/// Returns `y` T\[n,C\], a distribution for each row
pub fn causal_softmax(graph: &mut Graph, x: Value, seq: i64) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.integer("seq", seq);
    attrs.add(graph, "causal_softmax", &[x])
}

/// Attributes of [`softmax_dx()`] that may be left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftmaxDx {
    /// 1: the logarithm of the softmax
    pub log: bool,
}

impl SoftmaxDx {
    fn put(&self, attrs: &mut Attrs) {
        if self.log {
            attrs.integer("log", i64::from(self.log));
        }
    }
}

/// The gradient y (dy - sum dy y) of the rows of a softmax or causal_softmax, or dy - exp(y) sum dy if y is the
/// logarithm. Not differentiable.
///
/// - `dy`: T\[n,C\], gradient of the result
/// - `y`: T\[n,C\], the result
///
/// Returns `dx` T\[n,C\], gradient of x
pub fn softmax_dx(graph: &mut Graph, dy: Value, y: Value, options: &SoftmaxDx) -> Result<Value> {
    let mut attrs = Attrs::default();
    options.put(&mut attrs);
    attrs.add(graph, "softmax_dx", &[dy, y])
}

/// Attributes of [`top_gates()`] that may be left out.
#[derive(Clone, Copy, Debug)]
pub struct TopGates {
    /// 1: the weights of a row are divided by their sum
    pub normalize: bool,
}

impl Default for TopGates {
    fn default() -> Self {
        TopGates {
            normalize: true,
        }
    }
}

impl TopGates {
    fn put(&self, attrs: &mut Attrs) {
        if !self.normalize {
            attrs.integer("normalize", i64::from(self.normalize));
        }
    }
}

/// The softmax of each row at its k largest logits, and 0 elsewhere; of equal logits, those of lower index are chosen.
///
/// - `logits`: T\[n,E\], a score for each of E experts
/// - `k`: experts of a row, at most E
///
/// Returns `gates` T\[n,E\], weights of the experts
pub fn top_gates(graph: &mut Graph, logits: Value, k: i64, options: &TopGates) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.integer("k", k);
    options.put(&mut attrs);
    attrs.add(graph, "top_gates", &[logits])
}

/// Attributes of [`top_gates_dx()`] that may be left out.
#[derive(Clone, Copy, Debug)]
pub struct TopGatesDx {
    /// 1: the weights of a row are divided by their sum
    pub normalize: bool,
}

impl Default for TopGatesDx {
    fn default() -> Self {
        TopGatesDx {
            normalize: true,
        }
    }
}

impl TopGatesDx {
    fn put(&self, attrs: &mut Attrs) {
        if !self.normalize {
            attrs.integer("normalize", i64::from(self.normalize));
        }
    }
}

/// The gradient of the logits of a top_gates, for a fixed choice. Not differentiable.
///
/// - `dy`: T\[n,E\], gradient of the gates
/// - `logits`: T\[n,E\], a score for each of E experts
/// - `k`: experts of a row, at most E
///
/// Returns `dlogits` T\[n,E\], gradient of logits
pub fn top_gates_dx(graph: &mut Graph, dy: Value, logits: Value, k: i64, options: &TopGatesDx) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.integer("k", k);
    options.put(&mut attrs);
    attrs.add(graph, "top_gates_dx", &[dy, logits])
}

/// Each row times its element of one column of gates: y\[r\] = x\[r\] gates\[r, column\].
///
/// - `x`: T\[n,C\], rows
/// - `gates`: T\[n,E\], weights of the experts
/// - `column`: index of the expert, below E
///
/// Returns `y` T\[n,C\], scaled rows
pub fn scale_rows(graph: &mut Graph, x: Value, gates: Value, column: i64) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.integer("column", column);
    attrs.add(graph, "scale_rows", &[x, gates])
}

/// The gradient of the gates of a scale_rows: the product of dy\[r\] and x\[r\] in its column, 0 in the others. Not
/// differentiable.
///
/// - `dy`: T\[n,C\], gradient of the result
/// - `x`: T\[n,C\], rows
/// - `columns`: E
/// - `column`: index of the expert, below E
///
/// Returns `dgates` T\[n,E\], gradient of gates
pub fn scale_rows_dw(graph: &mut Graph, dy: Value, x: Value, columns: i64, column: i64) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.integer("columns", columns);
    attrs.integer("column", column);
    attrs.add(graph, "scale_rows_dw", &[dy, x])
}

/// E times the sum of f p over the experts, where, over the rows of all layers, f is the share of rows that have the
/// expert among their k largest and p the mean of its softmax.
///
/// - `logits`: T\[n,E\], scores of each layer, one operand for each
/// - `mask`: i32\[n\], rows where it is 0 do not count
/// - `k`: experts of a row, at most E
///
/// Returns `loss` A\[\], k if all experts are used equally
pub fn load_balance(graph: &mut Graph, logits: &[Value], mask: Option<Value>, k: i64) -> Result<Value> {
    let mut operands = logits.to_vec();
    operands.extend(mask);
    let mut attrs = Attrs::default();
    attrs.integer("k", k);
    attrs.add(graph, "load_balance", &operands)
}

/// The gradients of the logits of a load_balance, for fixed choices. Not differentiable.
///
/// - `dloss`: A\[\], gradient of the loss
/// - `logits`: T\[n,E\], scores of each layer, one operand for each
/// - `mask`: i32\[n\], rows where it is 0 do not count
/// - `k`: experts of a row, at most E
///
/// Returns `dlogits` T\[n,E\], gradient of each of the logits
pub fn load_balance_dx(graph: &mut Graph, dloss: Value, logits: &[Value], mask: Option<Value>, k: i64) ->
    Result<Vec<Value>> {
    let mut operands = vec![dloss];
    operands.extend_from_slice(logits);
    operands.extend(mask);
    let mut attrs = Attrs::default();
    attrs.integer("k", k);
    let first = attrs.add(graph, "load_balance_dx", &operands)?;
    Ok((0..logits.len()).map(|place| result(first, place)).collect())
}

/// The sum of two tensors of one shape.
///
/// - `a`: T\[any\], first summand
/// - `b`: T\[any\], second summand
///
/// Returns `y` T\[any\], a + b
pub fn add(graph: &mut Graph, a: Value, b: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "add", &[a, b])
}

/// In a training step each element becomes 0 with probability p, and the others are multiplied by 1 / (1 - p). Its
/// gradient is the same operation.
///
/// - `x`: T\[any\], any tensor
/// - `p`: probability of dropping an element, in \[0, 1)
/// - `op`: number of the random stream, 0 to 65535, different from those of other dropouts and of parameters
///
/// Returns `y` T\[any\], x with elements dropped
pub fn dropout(graph: &mut Graph, x: Value, p: f64, op: i64) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.number("p", p);
    attrs.integer("op", op);
    attrs.add(graph, "dropout", &[x])
}

/// The result of a layer or, with probability p in a training step, its input; one draw decides for all rows of the
/// micro-batch.
///
/// - `x`: T\[any\], input of the layer
/// - `y`: T\[any\], its result
/// - `p`: probability of leaving the layer out, in \[0, 1)
/// - `op`: number of the random stream, 0 to 65535, different from those of dropouts and of parameters
///
/// Returns `z` T\[any\], x if the layer is left out, otherwise y
pub fn layerdrop(graph: &mut Graph, x: Value, y: Value, p: f64, op: i64) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.number("p", p);
    attrs.integer("op", op);
    attrs.add(graph, "layerdrop", &[x, y])
}

/// The gradients of a layerdrop: dz for the operand that was the result, 0 for the other. Not differentiable.
///
/// - `dz`: T\[any\], gradient of the result
/// - `p`: probability of leaving the layer out, in \[0, 1)
/// - `op`: number of the random stream, 0 to 65535, different from those of dropouts and of parameters
///
/// Returns `dx` T\[any\], gradient of x; `dy` T\[any\], gradient of y
pub fn layerdrop_dx(graph: &mut Graph, dz: Value, p: f64, op: i64) -> Result<(Value, Value)> {
    let mut attrs = Attrs::default();
    attrs.number("p", p);
    attrs.integer("op", op);
    let first = attrs.add(graph, "layerdrop_dx", &[dz])?;
    Ok((result(first, 0), result(first, 1)))
}

/// Attributes of [`fill()`] that may be left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fill {
    /// 1: the value times the loss scale of the step
    pub loss_scale: i64,
}

impl Fill {
    fn put(&self, attrs: &mut Attrs) {
        if self.loss_scale != 0 {
            attrs.integer("loss_scale", self.loss_scale);
        }
    }
}

/// A scalar of a given value: the seed of gradients. Not differentiable.
///
/// - `value`: the value
/// - `dtype`: element type of the result (f32, bf16, f16, f64)
///
/// Returns `y` T\[\], the value
pub fn fill(graph: &mut Graph, value: f64, dtype: &str, options: &Fill) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.number("value", value);
    attrs.text("dtype", dtype);
    options.put(&mut attrs);
    attrs.add(graph, "fill", &[])
}

/// The same values in another floating type, rounded to the nearest, ties to even.
///
/// - `x`: T\[any\], any tensor
/// - `dtype`: element type of the result (f32, bf16, f16, f64)
///
/// Returns `y` \[any\], x in the type dtype
pub fn cast(graph: &mut Graph, x: Value, dtype: &str) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.text("dtype", dtype);
    attrs.add(graph, "cast", &[x])
}

/// Attributes of [`cross_entropy()`] that may be left out.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<'a> {
    /// e in \[0, 1\]: the loss of a row is (1 - e) (-log p at its target) + e (mean over words of -log p)
    pub label_smoothing: f64,
    /// z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row
    pub z_loss: f64,
    /// the mean or the sum of the losses of rows with a target, or a loss for each row (mean, sum, none)
    pub reduction: &'a str,
}

impl Default for CrossEntropy<'_> {
    fn default() -> Self {
        CrossEntropy {
            label_smoothing: 0.0,
            z_loss: 0.0,
            reduction: "mean",
        }
    }
}

impl CrossEntropy<'_> {
    fn put(&self, attrs: &mut Attrs) {
        if self.label_smoothing != 0.0 {
            attrs.number("label_smoothing", self.label_smoothing);
        }
        if self.z_loss != 0.0 {
            attrs.number("z_loss", self.z_loss);
        }
        if self.reduction != "mean" {
            attrs.text("reduction", self.reduction);
        }
    }
}

/// The mean over rows with a target of -log p, where p is the softmax of the row at its target; 0 without such rows.
/// Attributes change the loss of a row, or how losses are combined.
///
/// - `logits`: T\[n,V\], a score for each word
/// - `targets`: i32\[n\], the right word of each row; -100: the row has none
///
/// Returns `loss` A\[\], the loss; A\[n\] with reduction "none", 0 in rows without a target; `stats` A\[n,2\],
/// statistics of each row's softmax for the backward part
pub fn cross_entropy(graph: &mut Graph, logits: Value, targets: Value, options: &CrossEntropy) -> Result<(Value, Value)>
    {
    let mut attrs = Attrs::default();
    options.put(&mut attrs);
    let first = attrs.add(graph, "cross_entropy", &[logits, targets])?;
    Ok((result(first, 0), result(first, 1)))
}

/// Attributes of [`cross_entropy_dx()`] that may be left out.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropyDx<'a> {
    /// e in \[0, 1\]: the loss of a row is (1 - e) (-log p at its target) + e (mean over words of -log p)
    pub label_smoothing: f64,
    /// z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row
    pub z_loss: f64,
    /// the mean or the sum of the losses of rows with a target, or a loss for each row (mean, sum, none)
    pub reduction: &'a str,
}

impl Default for CrossEntropyDx<'_> {
    fn default() -> Self {
        CrossEntropyDx {
            label_smoothing: 0.0,
            z_loss: 0.0,
            reduction: "mean",
        }
    }
}

impl CrossEntropyDx<'_> {
    fn put(&self, attrs: &mut Attrs) {
        if self.label_smoothing != 0.0 {
            attrs.number("label_smoothing", self.label_smoothing);
        }
        if self.z_loss != 0.0 {
            attrs.number("z_loss", self.z_loss);
        }
        if self.reduction != "mean" {
            attrs.text("reduction", self.reduction);
        }
    }
}

/// The gradient of the logits of a cross_entropy. Not differentiable.
///
/// - `dloss`: A\[\], gradient of the loss; A\[n\] with reduction "none"
/// - `logits`: T\[n,V\], a score for each word
/// - `targets`: i32\[n\], the right word of each row; -100: the row has none
/// - `stats`: A\[n,2\], statistics of each row's softmax for the backward part
///
/// Returns `dlogits` T\[n,V\], gradient of logits
pub fn cross_entropy_dx(graph: &mut Graph, dloss: Value, logits: Value, targets: Value, stats: Value, options:
    &CrossEntropyDx) -> Result<Value> {
    let mut attrs = Attrs::default();
    options.put(&mut attrs);
    attrs.add(graph, "cross_entropy_dx", &[dloss, logits, targets, stats])
}

/// Attributes of [`linear_cross_entropy()`] that may be left out.
#[derive(Clone, Copy, Debug)]
pub struct LinearCrossEntropy<'a> {
    /// e in \[0, 1\]: the loss of a row is (1 - e) (-log p at its target) + e (mean over words of -log p)
    pub label_smoothing: f64,
    /// z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row
    pub z_loss: f64,
    /// the mean or the sum of the losses of rows with a target, or a loss for each row (mean, sum, none)
    pub reduction: &'a str,
    /// 1: the logits are rounded to T and kept for the backward part; 0: the backward part computes them again
    pub kept: i64,
}

impl Default for LinearCrossEntropy<'_> {
    fn default() -> Self {
        LinearCrossEntropy {
            label_smoothing: 0.0,
            z_loss: 0.0,
            reduction: "mean",
            kept: 0,
        }
    }
}

impl LinearCrossEntropy<'_> {
    fn put(&self, attrs: &mut Attrs) {
        if self.label_smoothing != 0.0 {
            attrs.number("label_smoothing", self.label_smoothing);
        }
        if self.z_loss != 0.0 {
            attrs.number("z_loss", self.z_loss);
        }
        if self.reduction != "mean" {
            attrs.text("reduction", self.reduction);
        }
        if self.kept != 0 {
            attrs.integer("kept", self.kept);
        }
    }
}

/// The cross_entropy of x w^T. The logits are computed in blocks of at most 1024 words and neither rounded nor kept, or
/// are kept as a whole.
///
/// - `x`: T\[n,C\], rows
/// - `w`: T\[V,C\], a row for each word
/// - `targets`: i32\[n\], the right word of each row; -100: the row has none
///
/// Returns `loss` A\[\], the loss; A\[n\] with reduction "none", 0 in rows without a target; `stats` A\[n,2\],
/// statistics of each row's softmax for the backward part
pub fn linear_cross_entropy(graph: &mut Graph, x: Value, w: Value, targets: Value, options: &LinearCrossEntropy) ->
    Result<(Value, Value)> {
    let mut attrs = Attrs::default();
    options.put(&mut attrs);
    let first = attrs.add(graph, "linear_cross_entropy", &[x, w, targets])?;
    Ok((result(first, 0), result(first, 1)))
}

/// Attributes of [`linear_cross_entropy_dx()`] that may be left out.
#[derive(Clone, Copy, Debug)]
pub struct LinearCrossEntropyDx<'a> {
    /// e in \[0, 1\]: the loss of a row is (1 - e) (-log p at its target) + e (mean over words of -log p)
    pub label_smoothing: f64,
    /// z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row
    pub z_loss: f64,
    /// the mean or the sum of the losses of rows with a target, or a loss for each row (mean, sum, none)
    pub reduction: &'a str,
    /// 1: the logits are rounded to T and kept for the backward part; 0: the backward part computes them again
    pub kept: i64,
}

impl Default for LinearCrossEntropyDx<'_> {
    fn default() -> Self {
        LinearCrossEntropyDx {
            label_smoothing: 0.0,
            z_loss: 0.0,
            reduction: "mean",
            kept: 0,
        }
    }
}

impl LinearCrossEntropyDx<'_> {
    fn put(&self, attrs: &mut Attrs) {
        if self.label_smoothing != 0.0 {
            attrs.number("label_smoothing", self.label_smoothing);
        }
        if self.z_loss != 0.0 {
            attrs.number("z_loss", self.z_loss);
        }
        if self.reduction != "mean" {
            attrs.text("reduction", self.reduction);
        }
        if self.kept != 0 {
            attrs.integer("kept", self.kept);
        }
    }
}

/// The gradients of a linear_cross_entropy. Logits that were not kept are computed again in blocks, and dx is summed
/// over the blocks in A. Not differentiable.
///
/// - `dloss`: A\[\], gradient of the loss; A\[n\] with reduction "none"
/// - `x`: T\[n,C\], rows
/// - `w`: T\[V,C\], a row for each word
/// - `targets`: i32\[n\], the right word of each row; -100: the row has none
/// - `stats`: A\[n,2\], statistics of each row's softmax for the backward part
///
/// Returns `dx` T\[n,C\], gradient of x; `dw` T\[V,C\], gradient of w
pub fn linear_cross_entropy_dx(graph: &mut Graph, dloss: Value, x: Value, w: Value, targets: Value, stats: Value,
    options: &LinearCrossEntropyDx) -> Result<(Value, Value)> {
    let mut attrs = Attrs::default();
    options.put(&mut attrs);
    let first = attrs.add(graph, "linear_cross_entropy_dx", &[dloss, x, w, targets, stats])?;
    Ok((result(first, 0), result(first, 1)))
}

/// The gradients of a linear_cross_entropy. Logits that were not kept are computed again in blocks, and dx is summed
/// over the blocks in A. Not differentiable.
///
/// - `dloss`: A\[\], gradient of the loss; A\[n\] with reduction "none"
/// - `x`: T\[n,C\], rows
/// - `w`: T\[V,C\], a row for each word
/// - `targets`: i32\[n\], the right word of each row; -100: the row has none
/// - `stats`: A\[n,2\], statistics of each row's softmax for the backward part
/// - `logits`: T\[n,P\], the logits that the forward part keeps with {kept=1}; P is V rounded up to a multiple of 8
///
/// Returns `dx` T\[n,C\], gradient of x; `dw` T\[V,C\], gradient of w
pub fn linear_cross_entropy_dx_kept(graph: &mut Graph, dloss: Value, x: Value, w: Value, targets: Value, stats: Value,
    logits: Value, options: &LinearCrossEntropyDx) -> Result<(Value, Value)> {
    let mut attrs = Attrs::default();
    options.put(&mut attrs);
    let first = attrs.add(graph, "linear_cross_entropy_dx", &[dloss, x, w, targets, stats, logits])?;
    Ok((result(first, 0), result(first, 1)))
}

/// The number of rows with a target, as cross_entropy counts them. Not differentiable.
///
/// - `targets`: i32\[n\], the right word of each row; -100: the row has none
///
/// Returns `count` f32\[\], the number of rows with a target
pub fn count_targets(graph: &mut Graph, targets: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "count_targets", &[targets])
}

/// The mean of (x - target)^2 over all elements, added in order in f64.
///
/// - `x`: T\[any\], any tensor
/// - `target`: T\[any\], the wanted values of x
///
/// Returns `loss` A\[\], the loss
pub fn mse(graph: &mut Graph, x: Value, target: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "mse", &[x, target])
}

/// The gradient 2 dloss (x - target) / elements of x in an mse. Not differentiable.
///
/// - `dloss`: A\[\], gradient of the loss
/// - `x`: T\[any\], any tensor
/// - `target`: T\[any\], the wanted values of x
///
/// Returns `dx` T\[any\], gradient of x
pub fn mse_dx(graph: &mut Graph, dloss: Value, x: Value, target: Value) -> Result<Value> {
    let attrs = Attrs::default();
    attrs.add(graph, "mse_dx", &[dloss, x, target])
}

/// Attributes of [`preference_loss()`] that may be left out.
#[derive(Clone, Copy, Debug)]
pub struct PreferenceLoss<'a> {
    /// how a pair is judged (sigmoid, hinge, ipo, odds, simpo)
    pub loss: &'a str,
    /// b > 0, the strength of the preference
    pub beta: f64,
    /// e in \[0, 1\]: the share of pairs whose order is taken to be wrong, with sigmoid and simpo
    pub label_smoothing: f64,
    /// the margin g of simpo
    pub margin: f64,
}

impl Default for PreferenceLoss<'_> {
    fn default() -> Self {
        PreferenceLoss {
            loss: "sigmoid",
            beta: 0.1,
            label_smoothing: 0.0,
            margin: 0.0,
        }
    }
}

impl PreferenceLoss<'_> {
    fn put(&self, attrs: &mut Attrs) {
        if self.loss != "sigmoid" {
            attrs.text("loss", self.loss);
        }
        if self.beta != 0.1 {
            attrs.number("beta", self.beta);
        }
        if self.label_smoothing != 0.0 {
            attrs.number("label_smoothing", self.label_smoothing);
        }
        if self.margin != 0.0 {
            attrs.number("margin", self.margin);
        }
    }
}

/// The mean over pairs of a loss of the chosen text c and the rejected text r. With L and R the sums of losses and
/// reference over the N targets of a text, s = R - L and a = -L / N: sigmoid is -(1 - e) log sigmoid(z) - e log
/// sigmoid(-z) of z = b (s_c - s_r), hinge is max(0, 1 - z), ipo is (s_c / N_c - s_r / N_r - 1 / (2 b))^2, odds is -b
/// log sigmoid(o_c - o_r) of the log odds o = a - log(1 - exp(a)), and simpo is like sigmoid for z = b (a_c - a_r) - g.
/// The reward of a text is b s, or b a without a reference. A pair without any target is padding and does not count.
///
/// - `losses`: A\[n\], the loss -log p of each row: a cross_entropy with reduction "none"
/// - `targets`: i32\[n\], the right word of each row; -100: the row has none
/// - `rows`: rows of a text; chosen and rejected texts take turns
///
/// Returns `loss` A\[\], the loss; `rewards` A\[4\], means over pairs: the reward of the chosen and of the rejected
/// text, the share of pairs whose chosen text has the larger one, and the difference of both
pub fn preference_loss(graph: &mut Graph, losses: Value, targets: Value, rows: i64, options: &PreferenceLoss) ->
    Result<(Value, Value)> {
    let mut attrs = Attrs::default();
    attrs.integer("rows", rows);
    options.put(&mut attrs);
    let first = attrs.add(graph, "preference_loss", &[losses, targets])?;
    Ok((result(first, 0), result(first, 1)))
}

/// The mean over pairs of a loss of the chosen text c and the rejected text r. With L and R the sums of losses and
/// reference over the N targets of a text, s = R - L and a = -L / N: sigmoid is -(1 - e) log sigmoid(z) - e log
/// sigmoid(-z) of z = b (s_c - s_r), hinge is max(0, 1 - z), ipo is (s_c / N_c - s_r / N_r - 1 / (2 b))^2, odds is -b
/// log sigmoid(o_c - o_r) of the log odds o = a - log(1 - exp(a)), and simpo is like sigmoid for z = b (a_c - a_r) - g.
/// The reward of a text is b s, or b a without a reference. A pair without any target is padding and does not count.
///
/// - `losses`: A\[n\], the loss -log p of each row: a cross_entropy with reduction "none"
/// - `targets`: i32\[n\], the right word of each row; -100: the row has none
/// - `reference`: A\[n\], the losses of the same rows in the reference model
/// - `rows`: rows of a text; chosen and rejected texts take turns
///
/// Returns `loss` A\[\], the loss; `rewards` A\[4\], means over pairs: the reward of the chosen and of the rejected
/// text, the share of pairs whose chosen text has the larger one, and the difference of both
pub fn preference_loss_reference(graph: &mut Graph, losses: Value, targets: Value, reference: Value, rows: i64, options:
    &PreferenceLoss) -> Result<(Value, Value)> {
    let mut attrs = Attrs::default();
    attrs.integer("rows", rows);
    options.put(&mut attrs);
    let first = attrs.add(graph, "preference_loss", &[losses, targets, reference])?;
    Ok((result(first, 0), result(first, 1)))
}

/// Attributes of [`preference_loss_dx()`] that may be left out.
#[derive(Clone, Copy, Debug)]
pub struct PreferenceLossDx<'a> {
    /// how a pair is judged (sigmoid, hinge, ipo, odds, simpo)
    pub loss: &'a str,
    /// b > 0, the strength of the preference
    pub beta: f64,
    /// e in \[0, 1\]: the share of pairs whose order is taken to be wrong, with sigmoid and simpo
    pub label_smoothing: f64,
    /// the margin g of simpo
    pub margin: f64,
}

impl Default for PreferenceLossDx<'_> {
    fn default() -> Self {
        PreferenceLossDx {
            loss: "sigmoid",
            beta: 0.1,
            label_smoothing: 0.0,
            margin: 0.0,
        }
    }
}

impl PreferenceLossDx<'_> {
    fn put(&self, attrs: &mut Attrs) {
        if self.loss != "sigmoid" {
            attrs.text("loss", self.loss);
        }
        if self.beta != 0.1 {
            attrs.number("beta", self.beta);
        }
        if self.label_smoothing != 0.0 {
            attrs.number("label_smoothing", self.label_smoothing);
        }
        if self.margin != 0.0 {
            attrs.number("margin", self.margin);
        }
    }
}

/// The gradients of the losses and the reference of a preference_loss. Not differentiable.
///
/// - `dloss`: A\[\], gradient of the loss
/// - `losses`: A\[n\], the loss -log p of each row: a cross_entropy with reduction "none"
/// - `targets`: i32\[n\], the right word of each row; -100: the row has none
/// - `rows`: rows of a text; chosen and rejected texts take turns
///
/// Returns `dlosses` A\[n\], gradient of losses
pub fn preference_loss_dx(graph: &mut Graph, dloss: Value, losses: Value, targets: Value, rows: i64, options:
    &PreferenceLossDx) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.integer("rows", rows);
    options.put(&mut attrs);
    attrs.add(graph, "preference_loss_dx", &[dloss, losses, targets])
}

/// The gradients of the losses and the reference of a preference_loss. Not differentiable.
///
/// - `dloss`: A\[\], gradient of the loss
/// - `losses`: A\[n\], the loss -log p of each row: a cross_entropy with reduction "none"
/// - `targets`: i32\[n\], the right word of each row; -100: the row has none
/// - `reference`: A\[n\], the losses of the same rows in the reference model
/// - `rows`: rows of a text; chosen and rejected texts take turns
///
/// Returns `dlosses` A\[n\], gradient of losses; `dreference` A\[n\], gradient of reference
pub fn preference_loss_dx_reference(graph: &mut Graph, dloss: Value, losses: Value, targets: Value, reference: Value,
    rows: i64, options: &PreferenceLossDx) -> Result<(Value, Value)> {
    let mut attrs = Attrs::default();
    attrs.integer("rows", rows);
    options.put(&mut attrs);
    let first = attrs.add(graph, "preference_loss_dx", &[dloss, losses, targets, reference])?;
    Ok((result(first, 0), result(first, 1)))
}

/// Attributes of [`dora_norm()`] that may be left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct DoraNorm {
    /// 1: the weight is stored as T\[I,O\]
    pub transposed: bool,
}

impl DoraNorm {
    fn put(&self, attrs: &mut Attrs) {
        if self.transposed {
            attrs.integer("transposed", i64::from(self.transposed));
        }
    }
}

/// The Euclidean norms of the rows of an adapted weight w + factor b a. Its gradient counts as 0. Not differentiable.
///
/// - `w`: T\[O,I\], weight
/// - `a`: T\[R,I\], first matrix of the adapter
/// - `b`: T\[O,R\], second matrix of the adapter
/// - `factor`: factor of the product b a
///
/// Returns `norms` T\[O\], norm of each row
pub fn dora_norm(graph: &mut Graph, w: Value, a: Value, b: Value, factor: f64, options: &DoraNorm) -> Result<Value> {
    let mut attrs = Attrs::default();
    attrs.number("factor", factor);
    options.put(&mut attrs);
    attrs.add(graph, "dora_norm", &[w, a, b])
}

/// The values that an adapter with magnitudes adds to the result of a linear: with c = m / norms, (c - 1) (base - b) +
/// c product. norms counts as a constant.
///
/// - `base`: T\[n,O\], products of rows and the weight, plus the bias
/// - `product`: T\[n,O\], products of rows and the adapter
/// - `m`: T\[O\], magnitude of each output
/// - `norms`: T\[O\], results of dora_norm
/// - `b`: T\[O\], bias in base
///
/// Returns `y` T\[n,O\], the sums
pub fn dora(graph: &mut Graph, base: Value, product: Value, m: Value, norms: Value, b: Option<Value>) -> Result<Value> {
    let mut operands = vec![base, product, m, norms];
    operands.extend(b);
    let attrs = Attrs::default();
    attrs.add(graph, "dora", &operands)
}

/// The gradients (c - 1) dy and c dy of base and product of a dora. Not differentiable.
///
/// - `dy`: T\[n,O\], gradient of the result
/// - `m`: T\[O\], magnitude of each output
/// - `norms`: T\[O\], results of dora_norm
///
/// Returns `dbase` T\[n,O\], gradient of base; `dproduct` T\[n,O\], gradient of product
pub fn dora_dx(graph: &mut Graph, dy: Value, m: Value, norms: Value) -> Result<(Value, Value)> {
    let attrs = Attrs::default();
    let first = attrs.add(graph, "dora_dx", &[dy, m, norms])?;
    Ok((result(first, 0), result(first, 1)))
}

/// The gradient of the magnitudes of a dora: the sum over rows of dy (base - b + product) / norms. Not differentiable.
///
/// - `dy`: T\[n,O\], gradient of the result
/// - `base`: T\[n,O\], products of rows and the weight, plus the bias
/// - `product`: T\[n,O\], products of rows and the adapter
/// - `norms`: T\[O\], results of dora_norm
/// - `b`: T\[O\], bias in base
///
/// Returns `dm` T\[O\], gradient of m
pub fn dora_dm(graph: &mut Graph, dy: Value, base: Value, product: Value, norms: Value, b: Option<Value>) ->
    Result<Value> {
    let mut operands = vec![dy, base, product, norms];
    operands.extend(b);
    let attrs = Attrs::default();
    attrs.add(graph, "dora_dm", &operands)
}
