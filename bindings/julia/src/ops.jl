# Written by tools/bindings.py; do not edit.
"""
A function for each operation of a `Graph`: operands, then attributes by name. Shapes in these texts are libds's, which are
those of Julia in reverse. An operation with several results returns them all.
"""
module Ops

import ..Libds: Graph, op!

quoted(text) = string('"', replace(replace(text, "\\" => "\\\\"), "\"" => "\\\""), '"')
json(value::Bool) = value ? "1" : "0"
json(value::Integer) = string(value)
json(value::Real) = string(Float64(value))
json(value::AbstractString) = quoted(value)

# Attributes that have their default are left out.
function add(g, op, operands, attributes)
    given = ["$(quoted(name)): $(json(value))" for (name, value, default) in attributes
             if value !== nothing && !isequal(value, default)]
    op!(g, op, filter(operand -> operand !== nothing, operands)...;
        attrs = isempty(given) ? nothing : string("{", join(given, ", "), "}"))
end

results(count, first) = Tuple(first + Int32(place) for place in 0:count-1)

"""
    embedding(g, w, ids; ...)

The rows of a table that ids name.

- `w`: T[V,C], a row for each word
- `ids`: i32[n], words, 0 to V-1
- `padding`: row of w that gets no gradient from this operation; -1: no row

Returns `y` T[n,C], a row for each id
"""
embedding(g::Graph, w, ids; padding::Integer = -1) =
    add(g, "embedding", Any[w, ids], Any[("padding", padding, -1)])

"""
    embedding_dw(g, dy, ids; ...)

The gradient of the table of an embedding: the sum of the rows of dy by id, in row order in A. Not differentiable.

- `dy`: T[n,C], gradient of the result
- `ids`: i32[n], words, 0 to V-1
- `rows`: V
- `padding`: row of w that gets no gradient from this operation; -1: no row

Returns `dw` T[V,C], gradient of w
"""
embedding_dw(g::Graph, dy, ids; rows::Integer, padding::Integer = -1) =
    add(g, "embedding_dw", Any[dy, ids], Any[("rows", rows, missing), ("padding", padding, -1)])

"""
    position(g, x, w; ...)

Adds to each row the row of a table for its position in the sequence: y[r] = x[r] + w[r mod seq].

- `x`: T[n,C], rows
- `w`: T[P,C], a row for each position
- `seq`: rows of a sequence, at most P

Returns `y` T[n,C], sums
"""
position(g::Graph, x, w; seq::Integer) =
    add(g, "position", Any[x, w], Any[("seq", seq, missing)])

"""
    position_dw(g, dy; ...)

The gradient of the table of a position; rows from seq on are 0. Not differentiable.

- `dy`: T[n,C], gradient of the result
- `seq`: rows of a sequence, at most P
- `rows`: P

Returns `dw` T[P,C], gradient of w
"""
position_dw(g::Graph, dy; seq::Integer, rows::Integer) =
    add(g, "position_dw", Any[dy], Any[("seq", seq, missing), ("rows", rows, missing)])

"""
    last_row(g, x)

The last row. Not differentiable.

- `x`: T[n,C], rows

Returns `y` T[1,C], x[n-1]
"""
last_row(g::Graph, x) =
    add(g, "last_row", Any[x], Any[])

"""
    linear(g, x, w, b; ...)

The product x w^T of rows and a weight, plus a bias if given.

- `x`: T[n,I], rows
- `w`: T[O,I], weight
- `b`: T[O], bias
- `transposed`: 1: the weight is stored as T[I,O]

Returns `y` T[n,O], products
"""
linear(g::Graph, x, w, b = nothing; transposed::Bool = false) =
    add(g, "linear", Any[x, w, b], Any[("transposed", transposed, false)])

"""
    linear_dx(g, dy, w; ...)

The gradient dy w of the rows of a linear. Not differentiable.

- `dy`: T[n,O], gradient of the result
- `w`: T[O,I], weight
- `transposed`: 1: the weight is stored as T[I,O]

Returns `dx` T[n,I], gradient of x
"""
linear_dx(g::Graph, dy, w; transposed::Bool = false) =
    add(g, "linear_dx", Any[dy, w], Any[("transposed", transposed, false)])

"""
    linear_dw(g, dy, x; ...)

The gradient dy^T x of the weight of a linear. Not differentiable.

- `dy`: T[n,O], gradient of the result
- `x`: T[n,I], rows
- `transposed`: 1: the weight is stored as T[I,O]

Returns `dw` T[O,I], gradient of w
"""
linear_dw(g::Graph, dy, x; transposed::Bool = false) =
    add(g, "linear_dw", Any[dy, x], Any[("transposed", transposed, false)])

"""
    linear_db(g, dy)

The gradient of the bias of a linear: the sum of each column. Not differentiable.

- `dy`: T[n,O], gradient of the result

Returns `db` T[O], gradient of b
"""
linear_db(g::Graph, dy) =
    add(g, "linear_db", Any[dy], Any[])

"""
    layer_norm(g, x, w, b; ...)

Normalized rows (x - mean) rstd w + b; w and b are given together or left out, which means 1 and 0.

- `x`: T[n,C], rows
- `w`: T[C], weight
- `b`: T[C], bias
- `eps`: added to the variance or mean square before its square root, > 0

Returns `y` T[n,C], normalized rows; `mean` A[n], mean of each row; `rstd` A[n], 1 / sqrt(variance + eps) of each row
"""
layer_norm(g::Graph, x, w = nothing, b = nothing; eps::Real) =
    results(3, add(g, "layer_norm", Any[x, w, b], Any[("eps", eps, missing)]))

"""
    layer_norm_dx(g, dy, x, mean, rstd, w)

The gradient of the rows of a layer_norm. Not differentiable.

- `dy`: T[n,C], gradient of the result
- `x`: T[n,C], rows
- `mean`: A[n], mean of each row
- `rstd`: A[n], 1 / sqrt(variance + eps) of each row
- `w`: T[C], weight

Returns `dx` T[n,C], gradient of x
"""
layer_norm_dx(g::Graph, dy, x, mean, rstd, w = nothing) =
    add(g, "layer_norm_dx", Any[dy, x, w, mean, rstd], Any[])

"""
    layer_norm_dw(g, dy, x, mean, rstd)

The gradients of weight and bias of a layer_norm. Not differentiable.

- `dy`: T[n,C], gradient of the result
- `x`: T[n,C], rows
- `mean`: A[n], mean of each row
- `rstd`: A[n], 1 / sqrt(variance + eps) of each row

Returns `dw` T[C], gradient of w; `db` T[C], gradient of b
"""
layer_norm_dw(g::Graph, dy, x, mean, rstd) =
    results(2, add(g, "layer_norm_dw", Any[dy, x, mean, rstd], Any[]))

"""
    rms_norm(g, x, w; ...)

Normalizes each run of D columns by itself: x rstd w. With D = C the runs are whole rows; with the width of a head they
are the heads of q or k.

- `x`: T[n,C], rows
- `w`: T[D], weight; D divides C
- `eps`: added to the variance or mean square before its square root, > 0
- `offset`: 1: w + 1 in place of w

Returns `y` T[n,C], normalized rows; `rstd` A[n,C/D], 1 / sqrt(mean of x^2 + eps) of each run
"""
rms_norm(g::Graph, x, w; eps::Real, offset::Bool = false) =
    results(2, add(g, "rms_norm", Any[x, w], Any[("eps", eps, missing), ("offset", offset, false)]))

"""
    rms_norm_dx(g, dy, x, w, rstd; ...)

The gradient of the rows of an rms_norm. Not differentiable.

- `dy`: T[n,C], gradient of the result
- `x`: T[n,C], rows
- `w`: T[D], weight; D divides C
- `rstd`: A[n,C/D], 1 / sqrt(mean of x^2 + eps) of each run
- `offset`: 1: w + 1 in place of w

Returns `dx` T[n,C], gradient of x
"""
rms_norm_dx(g::Graph, dy, x, w, rstd; offset::Bool = false) =
    add(g, "rms_norm_dx", Any[dy, x, w, rstd], Any[("offset", offset, false)])

"""
    rms_norm_dw(g, dy, x, rstd; ...)

The gradient of the weight of an rms_norm, for any offset: the sum of dy x rstd over rows and runs. Not differentiable.

- `dy`: T[n,C], gradient of the result
- `x`: T[n,C], rows
- `rstd`: A[n,C/D], 1 / sqrt(mean of x^2 + eps) of each run
- `width`: D

Returns `dw` T[D], gradient of w
"""
rms_norm_dw(g::Graph, dy, x, rstd; width::Integer) =
    add(g, "rms_norm_dw", Any[dy, x, rstd], Any[("width", width, missing)])

"""
    gelu(g, x; ...)

The activation x Phi(x), Phi the distribution function of normal numbers, of each element.

- `x`: T[any], any tensor
- `form`: tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); erf: 0.5 x (1 + erf(x/sqrt(2))); 10: as erf, but at
  most 10 (tanh, erf, 10)

Returns `y` T[any], activations
"""
gelu(g::Graph, x; form::AbstractString = "tanh") =
    add(g, "gelu", Any[x], Any[("form", form, "tanh")])

"""
    gelu_dx(g, dy, x; ...)

The gradient of the activation gelu. Not differentiable.

- `dy`: T[any], gradient of the result
- `x`: T[any], any tensor
- `form`: tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); erf: 0.5 x (1 + erf(x/sqrt(2))); 10: as erf, but at
  most 10 (tanh, erf, 10)

Returns `dx` T[any], gradient of x
"""
gelu_dx(g::Graph, dy, x; form::AbstractString = "tanh") =
    add(g, "gelu_dx", Any[dy, x], Any[("form", form, "tanh")])

"""
    relu(g, x)

The activation max(x, 0) of each element.

- `x`: T[any], any tensor

Returns `y` T[any], activations
"""
relu(g::Graph, x) =
    add(g, "relu", Any[x], Any[])

"""
    relu_dx(g, dy, x)

The gradient of the activation relu. Not differentiable.

- `dy`: T[any], gradient of the result
- `x`: T[any], any tensor

Returns `dx` T[any], gradient of x
"""
relu_dx(g::Graph, dy, x) =
    add(g, "relu_dx", Any[dy, x], Any[])

"""
    silu(g, x)

The activation x / (1 + exp(-x)) of each element.

- `x`: T[any], any tensor

Returns `y` T[any], activations
"""
silu(g::Graph, x) =
    add(g, "silu", Any[x], Any[])

"""
    silu_dx(g, dy, x)

The gradient of the activation silu. Not differentiable.

- `dy`: T[any], gradient of the result
- `x`: T[any], any tensor

Returns `dx` T[any], gradient of x
"""
silu_dx(g::Graph, dy, x) =
    add(g, "silu_dx", Any[dy, x], Any[])

"""
    tanh(g, x)

The activation tanh(x) of each element.

- `x`: T[any], any tensor

Returns `y` T[any], activations
"""
tanh(g::Graph, x) =
    add(g, "tanh", Any[x], Any[])

"""
    tanh_dx(g, dy, x)

The gradient of the activation tanh. Not differentiable.

- `dy`: T[any], gradient of the result
- `x`: T[any], any tensor

Returns `dx` T[any], gradient of x
"""
tanh_dx(g::Graph, dy, x) =
    add(g, "tanh_dx", Any[dy, x], Any[])

"""
    relu2(g, x)

The activation max(x, 0)^2 of each element.

- `x`: T[any], any tensor

Returns `y` T[any], activations
"""
relu2(g::Graph, x) =
    add(g, "relu2", Any[x], Any[])

"""
    relu2_dx(g, dy, x)

The gradient of the activation relu2. Not differentiable.

- `dy`: T[any], gradient of the result
- `x`: T[any], any tensor

Returns `dx` T[any], gradient of x
"""
relu2_dx(g::Graph, dy, x) =
    add(g, "relu2_dx", Any[dy, x], Any[])

"""
    sigmoid(g, x)

The activation 1 / (1 + exp(-x)) of each element.

- `x`: T[any], any tensor

Returns `y` T[any], activations
"""
sigmoid(g::Graph, x) =
    add(g, "sigmoid", Any[x], Any[])

"""
    sigmoid_dx(g, dy, x)

The gradient of the activation sigmoid. Not differentiable.

- `dy`: T[any], gradient of the result
- `x`: T[any], any tensor

Returns `dx` T[any], gradient of x
"""
sigmoid_dx(g::Graph, dy, x) =
    add(g, "sigmoid_dx", Any[dy, x], Any[])

"""
    quick_gelu(g, x)

The activation x / (1 + exp(-1.702 x)) of each element.

- `x`: T[any], any tensor

Returns `y` T[any], activations
"""
quick_gelu(g::Graph, x) =
    add(g, "quick_gelu", Any[x], Any[])

"""
    quick_gelu_dx(g, dy, x)

The gradient of the activation quick_gelu. Not differentiable.

- `dy`: T[any], gradient of the result
- `x`: T[any], any tensor

Returns `dx` T[any], gradient of x
"""
quick_gelu_dx(g::Graph, dy, x) =
    add(g, "quick_gelu_dx", Any[dy, x], Any[])

"""
    softplus(g, x)

The activation log(1 + exp(x)) of each element.

- `x`: T[any], any tensor

Returns `y` T[any], activations
"""
softplus(g::Graph, x) =
    add(g, "softplus", Any[x], Any[])

"""
    softplus_dx(g, dy, x)

The gradient of the activation softplus. Not differentiable.

- `dy`: T[any], gradient of the result
- `x`: T[any], any tensor

Returns `dx` T[any], gradient of x
"""
softplus_dx(g::Graph, dy, x) =
    add(g, "softplus_dx", Any[dy, x], Any[])

"""
    laplace(g, x)

The activation 0.5 (1 + erf((x - 0.707107) / (0.282095 sqrt(2)))) of each element.

- `x`: T[any], any tensor

Returns `y` T[any], activations
"""
laplace(g::Graph, x) =
    add(g, "laplace", Any[x], Any[])

"""
    laplace_dx(g, dy, x)

The gradient of the activation laplace. Not differentiable.

- `dy`: T[any], gradient of the result
- `x`: T[any], any tensor

Returns `dx` T[any], gradient of x
"""
laplace_dx(g::Graph, dy, x) =
    add(g, "laplace_dx", Any[dy, x], Any[])

"""
    glu(g, gate, up; ...)

A gated linear unit act(gate) up, rounded once.

- `gate`: T[n,F], the operand that is activated
- `up`: T[n,F], the operand that is gated
- `act`: the activation: gelu_tanh, gelu_erf and gelu_10 are the forms of gelu, others are operations (silu, gelu_tanh,
  gelu_erf, gelu_10, relu, tanh, relu2, laplace, sigmoid, quick_gelu, softplus)

Returns `y` T[n,F], act(gate) up
"""
glu(g::Graph, gate, up; act::AbstractString) =
    add(g, "glu", Any[gate, up], Any[("act", act, missing)])

"""
    glu_packed(g, x; ...)

A gated linear unit act(gate) up, rounded once.

- `x`: T[n,2F], gate and up, side by side
- `act`: the activation: gelu_tanh, gelu_erf and gelu_10 are the forms of gelu, others are operations (silu, gelu_tanh,
  gelu_erf, gelu_10, relu, tanh, relu2, laplace, sigmoid, quick_gelu, softplus)

Returns `y` T[n,F], act(gate) up
"""
glu_packed(g::Graph, x; act::AbstractString) =
    add(g, "glu", Any[x], Any[("act", act, missing)])

"""
    glu_dx(g, dy, gate, up; ...)

The gradients of a glu. Not differentiable.

- `dy`: T[n,F], gradient of the result
- `gate`: T[n,F], the operand that is activated
- `up`: T[n,F], the operand that is gated
- `act`: the activation: gelu_tanh, gelu_erf and gelu_10 are the forms of gelu, others are operations (silu, gelu_tanh,
  gelu_erf, gelu_10, relu, tanh, relu2, laplace, sigmoid, quick_gelu, softplus)

Returns `dgate` T[n,F], gradient of gate; `dup` T[n,F], gradient of up
"""
glu_dx(g::Graph, dy, gate, up; act::AbstractString) =
    results(2, add(g, "glu_dx", Any[dy, gate, up], Any[("act", act, missing)]))

"""
    glu_dx_packed(g, dy, x; ...)

The gradients of a glu. Not differentiable.

- `dy`: T[n,F], gradient of the result
- `x`: T[n,2F], gate and up, side by side
- `act`: the activation: gelu_tanh, gelu_erf and gelu_10 are the forms of gelu, others are operations (silu, gelu_tanh,
  gelu_erf, gelu_10, relu, tanh, relu2, laplace, sigmoid, quick_gelu, softplus)

Returns `dx` T[n,2F], gradient of x
"""
glu_dx_packed(g::Graph, dy, x; act::AbstractString) =
    add(g, "glu_dx", Any[dy, x], Any[("act", act, missing)])

"""
    mul(g, a, b)

The product of two tensors of one shape, element by element.

- `a`: T[any], first factor
- `b`: T[any], second factor

Returns `y` T[any], a b
"""
mul(g::Graph, a, b) =
    add(g, "mul", Any[a, b], Any[])

"""
    scale(g, x; ...)

A tensor times a number, which is rounded to A first. Its gradient is the same operation.

- `x`: T[any], any tensor
- `factor`: the number

Returns `y` T[any], x factor
"""
scale(g::Graph, x; factor::Real) =
    add(g, "scale", Any[x], Any[("factor", factor, missing)])

"""
    softcap(g, x; ...)

Values bounded smoothly: cap tanh(x / cap).

- `x`: T[any], any tensor
- `cap`: the bound, > 0

Returns `y` T[any], bounded values
"""
softcap(g::Graph, x; cap::Real) =
    add(g, "softcap", Any[x], Any[("cap", cap, missing)])

"""
    softcap_dx(g, dy, y; ...)

The gradient dy (1 - (y / cap)^2) of a softcap. Not differentiable.

- `dy`: T[any], gradient of the result
- `y`: T[any], the result
- `cap`: the bound, > 0

Returns `dx` T[any], gradient of x
"""
softcap_dx(g::Graph, dy, y; cap::Real) =
    add(g, "softcap_dx", Any[dy, y], Any[("cap", cap, missing)])

"""
    attention(g, q, k, v, mask; ...)

Attention within sequences: softmax(scores) v for each row and head.

- `q`: T[n,HD], queries of H heads
- `k`: T[n,GD], keys of G heads
- `v`: T[n,GD], values of G heads
- `mask`: i32[n], rows where it is 0 are seen by no row; with documents it is begin
- `heads`: H, heads of queries
- `seq`: rows of a sequence
- `kv_heads`: G, heads of keys and values, a divisor of H; 0: H heads
- `causal`: 1: a row sees itself and rows before it, 0: its whole sequence
- `window`: number of rows that a row sees, itself included; 0: all; only for causal attention
- `scale`: factor of scores; 0: 1/sqrt(D)
- `softcap`: bound of scores; 0: none
- `per_head`: 1: qkv is q, k, v of head 0, then of head 1 and so on
- `dropout`: probability of dropping a weight in a training step, in [0, 1)
- `op`: number of the random stream of dropout, 0 to 65535; needed with dropout
- `documents`: 1: mask is begin, which holds for each row the first row of its document. Documents follow one another,
  each at most seq rows long; a row sees only its own document

Returns `y` T[n,HD], weighted sums of values; `lse` A[H,n], logarithm of the sum of exp of the scores
"""
attention(g::Graph, q, k, v, mask = nothing; heads::Integer, seq::Integer, kv_heads::Integer = 0, causal::Bool = true,
    window::Integer = 0, scale::Real = 0.0, softcap::Real = 0.0, per_head::Bool = false, dropout::Real = 0.0,
    op::Union{Integer,Nothing} = nothing, documents::Bool = false) =
    results(2, add(g, "attention", Any[q, k, v, mask], Any[("heads", heads, missing), ("seq", seq, missing),
        ("kv_heads", kv_heads, 0), ("causal", causal, true), ("window", window, 0), ("scale", scale, 0.0), ("softcap",
        softcap, 0.0), ("per_head", per_head, false), ("dropout", dropout, 0.0), ("op", op, nothing), ("documents",
        documents, false)]))

"""
    attention_packed(g, qkv, mask; ...)

Attention within sequences: softmax(scores) v for each row and head.

- `qkv`: T[n,(H+2G)D], queries, keys and values, side by side
- `mask`: i32[n], rows where it is 0 are seen by no row; with documents it is begin
- `heads`: H, heads of queries
- `seq`: rows of a sequence
- `kv_heads`: G, heads of keys and values, a divisor of H; 0: H heads
- `causal`: 1: a row sees itself and rows before it, 0: its whole sequence
- `window`: number of rows that a row sees, itself included; 0: all; only for causal attention
- `scale`: factor of scores; 0: 1/sqrt(D)
- `softcap`: bound of scores; 0: none
- `per_head`: 1: qkv is q, k, v of head 0, then of head 1 and so on
- `dropout`: probability of dropping a weight in a training step, in [0, 1)
- `op`: number of the random stream of dropout, 0 to 65535; needed with dropout
- `documents`: 1: mask is begin, which holds for each row the first row of its document. Documents follow one another,
  each at most seq rows long; a row sees only its own document

Returns `y` T[n,HD], weighted sums of values; `lse` A[H,n], logarithm of the sum of exp of the scores
"""
attention_packed(g::Graph, qkv, mask = nothing; heads::Integer, seq::Integer, kv_heads::Integer = 0, causal::Bool =
    true, window::Integer = 0, scale::Real = 0.0, softcap::Real = 0.0, per_head::Bool = false, dropout::Real = 0.0,
    op::Union{Integer,Nothing} = nothing, documents::Bool = false) =
    results(2, add(g, "attention", Any[qkv, mask], Any[("heads", heads, missing), ("seq", seq, missing), ("kv_heads",
        kv_heads, 0), ("causal", causal, true), ("window", window, 0), ("scale", scale, 0.0), ("softcap", softcap, 0.0),
        ("per_head", per_head, false), ("dropout", dropout, 0.0), ("op", op, nothing), ("documents", documents,
        false)]))

"""
    attention_dx(g, dy, q, k, v, y, lse, mask; ...)

The gradients of an attention. Not differentiable.

- `dy`: T[n,HD], gradient of y
- `q`: T[n,HD], queries of H heads
- `k`: T[n,GD], keys of G heads
- `v`: T[n,GD], values of G heads
- `y`: T[n,HD], weighted sums of values
- `lse`: A[H,n], logarithm of the sum of exp of the scores
- `mask`: i32[n], rows where it is 0 are seen by no row; with documents it is begin
- `heads`: H, heads of queries
- `seq`: rows of a sequence
- `kv_heads`: G, heads of keys and values, a divisor of H; 0: H heads
- `causal`: 1: a row sees itself and rows before it, 0: its whole sequence
- `window`: number of rows that a row sees, itself included; 0: all; only for causal attention
- `scale`: factor of scores; 0: 1/sqrt(D)
- `softcap`: bound of scores; 0: none
- `per_head`: 1: qkv is q, k, v of head 0, then of head 1 and so on
- `dropout`: probability of dropping a weight in a training step, in [0, 1)
- `op`: number of the random stream of dropout, 0 to 65535; needed with dropout
- `documents`: 1: mask is begin, which holds for each row the first row of its document. Documents follow one another,
  each at most seq rows long; a row sees only its own document

Returns `dq` T[n,HD], gradient of q; `dk` T[n,GD], gradient of k; `dv` T[n,GD], gradient of v
"""
attention_dx(g::Graph, dy, q, k, v, y, lse, mask = nothing; heads::Integer, seq::Integer, kv_heads::Integer = 0,
    causal::Bool = true, window::Integer = 0, scale::Real = 0.0, softcap::Real = 0.0, per_head::Bool = false,
    dropout::Real = 0.0, op::Union{Integer,Nothing} = nothing, documents::Bool = false) =
    results(3, add(g, "attention_dx", Any[dy, q, k, v, mask, y, lse], Any[("heads", heads, missing), ("seq", seq,
        missing), ("kv_heads", kv_heads, 0), ("causal", causal, true), ("window", window, 0), ("scale", scale, 0.0),
        ("softcap", softcap, 0.0), ("per_head", per_head, false), ("dropout", dropout, 0.0), ("op", op, nothing),
        ("documents", documents, false)]))

"""
    attention_dx_packed(g, dy, qkv, y, lse, mask; ...)

The gradients of an attention. Not differentiable.

- `dy`: T[n,HD], gradient of y
- `qkv`: T[n,(H+2G)D], queries, keys and values, side by side
- `y`: T[n,HD], weighted sums of values
- `lse`: A[H,n], logarithm of the sum of exp of the scores
- `mask`: i32[n], rows where it is 0 are seen by no row; with documents it is begin
- `heads`: H, heads of queries
- `seq`: rows of a sequence
- `kv_heads`: G, heads of keys and values, a divisor of H; 0: H heads
- `causal`: 1: a row sees itself and rows before it, 0: its whole sequence
- `window`: number of rows that a row sees, itself included; 0: all; only for causal attention
- `scale`: factor of scores; 0: 1/sqrt(D)
- `softcap`: bound of scores; 0: none
- `per_head`: 1: qkv is q, k, v of head 0, then of head 1 and so on
- `dropout`: probability of dropping a weight in a training step, in [0, 1)
- `op`: number of the random stream of dropout, 0 to 65535; needed with dropout
- `documents`: 1: mask is begin, which holds for each row the first row of its document. Documents follow one another,
  each at most seq rows long; a row sees only its own document

Returns `dqkv` T[n,(H+2G)D], gradient of qkv
"""
attention_dx_packed(g::Graph, dy, qkv, y, lse, mask = nothing; heads::Integer, seq::Integer, kv_heads::Integer = 0,
    causal::Bool = true, window::Integer = 0, scale::Real = 0.0, softcap::Real = 0.0, per_head::Bool = false,
    dropout::Real = 0.0, op::Union{Integer,Nothing} = nothing, documents::Bool = false) =
    add(g, "attention_dx", Any[dy, qkv, mask, y, lse], Any[("heads", heads, missing), ("seq", seq, missing),
        ("kv_heads", kv_heads, 0), ("causal", causal, true), ("window", window, 0), ("scale", scale, 0.0), ("softcap",
        softcap, 0.0), ("per_head", per_head, false), ("dropout", dropout, 0.0), ("op", op, nothing), ("documents",
        documents, false)])

"""
    cached_attention(g, q, k, v, positions, cache; ...)

Causal attention of some rows of a text to all rows so far: writes their keys and values to the cache, then reads the
cache. Not differentiable.

- `q`: T[n,HD], queries of H heads
- `k`: T[n,GD], keys of G heads
- `v`: T[n,GD], values of G heads
- `positions`: i32[n], position of each row in the text, below P; all are different
- `cache`: T[2G,P,D], keys, then values, of the P positions of a text
- `heads`: H, heads of queries
- `kv_heads`: G, heads of keys and values, a divisor of H; 0: H heads
- `window`: number of rows that a row sees, itself included; 0: all; only for causal attention
- `scale`: factor of scores; 0: 1/sqrt(D)
- `softcap`: bound of scores; 0: none
- `per_head`: 1: qkv is q, k, v of head 0, then of head 1 and so on

Returns `y` T[n,HD], weighted sums of values; `cache` T[2G,P,D], keys, then values, of the P positions of a text
"""
cached_attention(g::Graph, q, k, v, positions, cache; heads::Integer, kv_heads::Integer = 0, window::Integer = 0,
    scale::Real = 0.0, softcap::Real = 0.0, per_head::Bool = false) =
    results(2, add(g, "cached_attention", Any[q, k, v, positions, cache], Any[("heads", heads, missing), ("kv_heads",
        kv_heads, 0), ("window", window, 0), ("scale", scale, 0.0), ("softcap", softcap, 0.0), ("per_head", per_head,
        false)]))

"""
    cached_attention_packed(g, qkv, positions, cache; ...)

Causal attention of some rows of a text to all rows so far: writes their keys and values to the cache, then reads the
cache. Not differentiable.

- `qkv`: T[n,(H+2G)D], queries, keys and values, side by side
- `positions`: i32[n], position of each row in the text, below P; all are different
- `cache`: T[2G,P,D], keys, then values, of the P positions of a text
- `heads`: H, heads of queries
- `kv_heads`: G, heads of keys and values, a divisor of H; 0: H heads
- `window`: number of rows that a row sees, itself included; 0: all; only for causal attention
- `scale`: factor of scores; 0: 1/sqrt(D)
- `softcap`: bound of scores; 0: none
- `per_head`: 1: qkv is q, k, v of head 0, then of head 1 and so on

Returns `y` T[n,HD], weighted sums of values; `cache` T[2G,P,D], keys, then values, of the P positions of a text
"""
cached_attention_packed(g::Graph, qkv, positions, cache; heads::Integer, kv_heads::Integer = 0, window::Integer = 0,
    scale::Real = 0.0, softcap::Real = 0.0, per_head::Bool = false) =
    results(2, add(g, "cached_attention", Any[qkv, positions, cache], Any[("heads", heads, missing), ("kv_heads",
        kv_heads, 0), ("window", window, 0), ("scale", scale, 0.0), ("softcap", softcap, 0.0), ("per_head", per_head,
        false)]))

"""
    rope(g, x, positions, length; ...)

Rotary positions: rotates pairs of columns of each head by angles that grow with the position of the row.

- `x`: T[n,H*D], rows of H heads
- `positions`: i32[n], position of each row; r mod seq if absent
- `length`: i32[1], length of the text; seq if absent
- `heads`: H
- `seq`: rows of a sequence
- `theta`: base of the angles, > 1
- `dims`: columns of a head that are rotated; 0: all
- `period`: a head is rotated if its number modulo period is below rotated; heads if absent
- `rotated`: see period; period if absent
- `interleaved`: 1: the columns of a pair are neighbours; 0: they are dims/2 apart
- `inverse`: 1: rotates by the opposite angles
- `scaling`: how angles are changed for longer texts (none, linear, dynamic, llama3, yarn, longrope)
- `factor`: for every scaling except none and longrope, > 0
- `low`: for llama3 and yarn, > 0
- `high`: for llama3 and yarn, > 0
- `original`: length of texts before scaling; for dynamic, llama3 and yarn, and for longrope with long_factors
- `power`: for dynamic
- `factors`: for longrope: dims/2 numbers > 0 with blanks between them
- `long_factors`: for longrope: factors for texts longer than original
- `magnitude`: factor of the result; 0: the factor that the scaling defines
- `truncate`: for yarn: 1 rounds the first and the last scaled pair to whole ones

Returns `y` T[n,H*D], rotated rows
"""
rope(g::Graph, x, positions = nothing, length = nothing; heads::Integer, seq::Integer, theta::Real, dims::Integer = 0,
    period::Union{Integer,Nothing} = nothing, rotated::Union{Integer,Nothing} = nothing, interleaved::Bool = false,
    inverse::Bool = false, scaling::AbstractString = "none", factor::Union{Real,Nothing} = nothing,
    low::Union{Real,Nothing} = nothing, high::Union{Real,Nothing} = nothing, original::Union{Integer,Nothing} = nothing,
    power::Union{Real,Nothing} = nothing, factors::Union{AbstractString,Nothing} = nothing,
    long_factors::Union{AbstractString,Nothing} = nothing, magnitude::Real = 0.0, truncate::Bool = true) =
    add(g, "rope", Any[x, positions, length], Any[("heads", heads, missing), ("seq", seq, missing), ("theta", theta,
        missing), ("dims", dims, 0), ("period", period, nothing), ("rotated", rotated, nothing), ("interleaved",
        interleaved, false), ("inverse", inverse, false), ("scaling", scaling, "none"), ("factor", factor, nothing),
        ("low", low, nothing), ("high", high, nothing), ("original", original, nothing), ("power", power, nothing),
        ("factors", factors, nothing), ("long_factors", long_factors, nothing), ("magnitude", magnitude, 0.0),
        ("truncate", truncate, true)])

"""
    softmax(g, x; ...)

The softmax exp(x) / sum exp(x) of each row, or its logarithm.

- `x`: T[n,C], rows
- `log`: 1: the logarithm of the softmax

Returns `y` T[n,C], a distribution for each row
"""
softmax(g::Graph, x; log::Bool = false) =
    add(g, "softmax", Any[x], Any[("log", log, false)])

"""
    causal_softmax(g, x; ...)

The softmax of the columns 0 to r mod seq of each row r; the other columns are 0.

- `x`: T[n,C], rows
- `seq`: rows of a sequence

Returns `y` T[n,C], a distribution for each row
"""
causal_softmax(g::Graph, x; seq::Integer) =
    add(g, "causal_softmax", Any[x], Any[("seq", seq, missing)])

"""
    softmax_dx(g, dy, y; ...)

The gradient y (dy - sum dy y) of the rows of a softmax or causal_softmax, or dy - exp(y) sum dy if y is the logarithm.
Not differentiable.

- `dy`: T[n,C], gradient of the result
- `y`: T[n,C], the result
- `log`: 1: the logarithm of the softmax

Returns `dx` T[n,C], gradient of x
"""
softmax_dx(g::Graph, dy, y; log::Bool = false) =
    add(g, "softmax_dx", Any[dy, y], Any[("log", log, false)])

"""
    top_gates(g, logits; ...)

The softmax of each row at its k largest logits, and 0 elsewhere; of equal logits, those of lower index are chosen.

- `logits`: T[n,E], a score for each of E experts
- `k`: experts of a row, at most E
- `normalize`: 1: the weights of a row are divided by their sum

Returns `gates` T[n,E], weights of the experts
"""
top_gates(g::Graph, logits; k::Integer, normalize::Bool = true) =
    add(g, "top_gates", Any[logits], Any[("k", k, missing), ("normalize", normalize, true)])

"""
    top_gates_dx(g, dy, logits; ...)

The gradient of the logits of a top_gates, for a fixed choice. Not differentiable.

- `dy`: T[n,E], gradient of the gates
- `logits`: T[n,E], a score for each of E experts
- `k`: experts of a row, at most E
- `normalize`: 1: the weights of a row are divided by their sum

Returns `dlogits` T[n,E], gradient of logits
"""
top_gates_dx(g::Graph, dy, logits; k::Integer, normalize::Bool = true) =
    add(g, "top_gates_dx", Any[dy, logits], Any[("k", k, missing), ("normalize", normalize, true)])

"""
    scale_rows(g, x, gates; ...)

Each row times its element of one column of gates: y[r] = x[r] gates[r, column].

- `x`: T[n,C], rows
- `gates`: T[n,E], weights of the experts
- `column`: index of the expert, below E

Returns `y` T[n,C], scaled rows
"""
scale_rows(g::Graph, x, gates; column::Integer) =
    add(g, "scale_rows", Any[x, gates], Any[("column", column, missing)])

"""
    scale_rows_dw(g, dy, x; ...)

The gradient of the gates of a scale_rows: the product of dy[r] and x[r] in its column, 0 in the others. Not
differentiable.

- `dy`: T[n,C], gradient of the result
- `x`: T[n,C], rows
- `columns`: E
- `column`: index of the expert, below E

Returns `dgates` T[n,E], gradient of gates
"""
scale_rows_dw(g::Graph, dy, x; columns::Integer, column::Integer) =
    add(g, "scale_rows_dw", Any[dy, x], Any[("columns", columns, missing), ("column", column, missing)])

"""
    load_balance(g, logits, mask; ...)

E times the sum of f p over the experts, where, over the rows of all layers, f is the share of rows that have the expert
among their k largest and p the mean of its softmax.

- `logits`: T[n,E], scores of each layer, one operand for each
- `mask`: i32[n], rows where it is 0 do not count
- `k`: experts of a row, at most E

Returns `loss` A[], k if all experts are used equally
"""
load_balance(g::Graph, logits, mask = nothing; k::Integer) =
    add(g, "load_balance", Any[logits..., mask], Any[("k", k, missing)])

"""
    load_balance_dx(g, dloss, logits, mask; ...)

The gradients of the logits of a load_balance, for fixed choices. Not differentiable.

- `dloss`: A[], gradient of the loss
- `logits`: T[n,E], scores of each layer, one operand for each
- `mask`: i32[n], rows where it is 0 do not count
- `k`: experts of a row, at most E

Returns `dlogits` T[n,E], gradient of each of the logits
"""
load_balance_dx(g::Graph, dloss, logits, mask = nothing; k::Integer) =
    results(length(logits), add(g, "load_balance_dx", Any[dloss, logits..., mask], Any[("k", k, missing)]))

"""
    add(g, a, b)

The sum of two tensors of one shape.

- `a`: T[any], first summand
- `b`: T[any], second summand

Returns `y` T[any], a + b
"""
add(g::Graph, a, b) =
    add(g, "add", Any[a, b], Any[])

"""
    dropout(g, x; ...)

In a training step each element becomes 0 with probability p, and the others are multiplied by 1 / (1 - p). Its gradient
is the same operation.

- `x`: T[any], any tensor
- `p`: probability of dropping an element, in [0, 1)
- `op`: number of the random stream, 0 to 65535, different from those of other dropouts and of parameters

Returns `y` T[any], x with elements dropped
"""
dropout(g::Graph, x; p::Real, op::Integer) =
    add(g, "dropout", Any[x], Any[("p", p, missing), ("op", op, missing)])

"""
    layerdrop(g, x, y; ...)

The result of a layer or, with probability p in a training step, its input; one draw decides for all rows of the
micro-batch.

- `x`: T[any], input of the layer
- `y`: T[any], its result
- `p`: probability of leaving the layer out, in [0, 1)
- `op`: number of the random stream, 0 to 65535, different from those of dropouts and of parameters

Returns `z` T[any], x if the layer is left out, otherwise y
"""
layerdrop(g::Graph, x, y; p::Real, op::Integer) =
    add(g, "layerdrop", Any[x, y], Any[("p", p, missing), ("op", op, missing)])

"""
    layerdrop_dx(g, dz; ...)

The gradients of a layerdrop: dz for the operand that was the result, 0 for the other. Not differentiable.

- `dz`: T[any], gradient of the result
- `p`: probability of leaving the layer out, in [0, 1)
- `op`: number of the random stream, 0 to 65535, different from those of dropouts and of parameters

Returns `dx` T[any], gradient of x; `dy` T[any], gradient of y
"""
layerdrop_dx(g::Graph, dz; p::Real, op::Integer) =
    results(2, add(g, "layerdrop_dx", Any[dz], Any[("p", p, missing), ("op", op, missing)]))

"""
    fill(g; ...)

A scalar of a given value: the seed of gradients. Not differentiable.

- `value`: the value
- `dtype`: element type of the result (f32, bf16, f16, f64)
- `loss_scale`: 1: the value times the loss scale of the step

Returns `y` T[], the value
"""
fill(g::Graph; value::Real, dtype::AbstractString, loss_scale::Integer = 0) =
    add(g, "fill", Any[], Any[("value", value, missing), ("dtype", dtype, missing), ("loss_scale", loss_scale, 0)])

"""
    cast(g, x; ...)

The same values in another floating type, rounded to the nearest, ties to even.

- `x`: T[any], any tensor
- `dtype`: element type of the result (f32, bf16, f16, f64)

Returns `y` [any], x in the type dtype
"""
cast(g::Graph, x; dtype::AbstractString) =
    add(g, "cast", Any[x], Any[("dtype", dtype, missing)])

"""
    cross_entropy(g, logits, targets; ...)

The mean over rows with a target of -log p, where p is the softmax of the row at its target; 0 without such rows.
Attributes change the loss of a row, or how losses are combined.

- `logits`: T[n,V], a score for each word
- `targets`: i32[n], the right word of each row; -100: the row has none
- `label_smoothing`: e in [0, 1]: the loss of a row is (1 - e) (-log p at its target) + e (mean over words of -log p)
- `z_loss`: z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row
- `reduction`: the mean or the sum of the losses of rows with a target, or a loss for each row (mean, sum, none)

Returns `loss` A[], the loss; A[n] with reduction \"none\", 0 in rows without a target; `stats` A[n,2], statistics of
each row's softmax for the backward part
"""
cross_entropy(g::Graph, logits, targets; label_smoothing::Real = 0.0, z_loss::Real = 0.0, reduction::AbstractString =
    "mean") =
    results(2, add(g, "cross_entropy", Any[logits, targets], Any[("label_smoothing", label_smoothing, 0.0), ("z_loss",
        z_loss, 0.0), ("reduction", reduction, "mean")]))

"""
    cross_entropy_dx(g, dloss, logits, targets, stats; ...)

The gradient of the logits of a cross_entropy. Not differentiable.

- `dloss`: A[], gradient of the loss; A[n] with reduction \"none\"
- `logits`: T[n,V], a score for each word
- `targets`: i32[n], the right word of each row; -100: the row has none
- `stats`: A[n,2], statistics of each row's softmax for the backward part
- `label_smoothing`: e in [0, 1]: the loss of a row is (1 - e) (-log p at its target) + e (mean over words of -log p)
- `z_loss`: z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row
- `reduction`: the mean or the sum of the losses of rows with a target, or a loss for each row (mean, sum, none)

Returns `dlogits` T[n,V], gradient of logits
"""
cross_entropy_dx(g::Graph, dloss, logits, targets, stats; label_smoothing::Real = 0.0, z_loss::Real = 0.0,
    reduction::AbstractString = "mean") =
    add(g, "cross_entropy_dx", Any[dloss, logits, targets, stats], Any[("label_smoothing", label_smoothing, 0.0),
        ("z_loss", z_loss, 0.0), ("reduction", reduction, "mean")])

"""
    linear_cross_entropy(g, x, w, targets; ...)

The cross_entropy of x w^T. The logits are computed in blocks of at most 1024 words and neither rounded nor kept, or are
kept as a whole.

- `x`: T[n,C], rows
- `w`: T[V,C], a row for each word
- `targets`: i32[n], the right word of each row; -100: the row has none
- `label_smoothing`: e in [0, 1]: the loss of a row is (1 - e) (-log p at its target) + e (mean over words of -log p)
- `z_loss`: z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row
- `reduction`: the mean or the sum of the losses of rows with a target, or a loss for each row (mean, sum, none)
- `kept`: 1: the logits are rounded to T and kept for the backward part; 0: the backward part computes them again

Returns `loss` A[], the loss; A[n] with reduction \"none\", 0 in rows without a target; `stats` A[n,2], statistics of
each row's softmax for the backward part
"""
linear_cross_entropy(g::Graph, x, w, targets; label_smoothing::Real = 0.0, z_loss::Real = 0.0, reduction::AbstractString
    = "mean", kept::Integer = 0) =
    results(2, add(g, "linear_cross_entropy", Any[x, w, targets], Any[("label_smoothing", label_smoothing, 0.0),
        ("z_loss", z_loss, 0.0), ("reduction", reduction, "mean"), ("kept", kept, 0)]))

"""
    linear_cross_entropy_dx(g, dloss, x, w, targets, stats; ...)

The gradients of a linear_cross_entropy. Logits that were not kept are computed again in blocks, and dx is summed over
the blocks in A. Not differentiable.

- `dloss`: A[], gradient of the loss; A[n] with reduction \"none\"
- `x`: T[n,C], rows
- `w`: T[V,C], a row for each word
- `targets`: i32[n], the right word of each row; -100: the row has none
- `stats`: A[n,2], statistics of each row's softmax for the backward part
- `label_smoothing`: e in [0, 1]: the loss of a row is (1 - e) (-log p at its target) + e (mean over words of -log p)
- `z_loss`: z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row
- `reduction`: the mean or the sum of the losses of rows with a target, or a loss for each row (mean, sum, none)
- `kept`: 1: the logits are rounded to T and kept for the backward part; 0: the backward part computes them again

Returns `dx` T[n,C], gradient of x; `dw` T[V,C], gradient of w
"""
linear_cross_entropy_dx(g::Graph, dloss, x, w, targets, stats; label_smoothing::Real = 0.0, z_loss::Real = 0.0,
    reduction::AbstractString = "mean", kept::Integer = 0) =
    results(2, add(g, "linear_cross_entropy_dx", Any[dloss, x, w, targets, stats], Any[("label_smoothing",
        label_smoothing, 0.0), ("z_loss", z_loss, 0.0), ("reduction", reduction, "mean"), ("kept", kept, 0)]))

"""
    linear_cross_entropy_dx_kept(g, dloss, x, w, targets, stats, logits; ...)

The gradients of a linear_cross_entropy. Logits that were not kept are computed again in blocks, and dx is summed over
the blocks in A. Not differentiable.

- `dloss`: A[], gradient of the loss; A[n] with reduction \"none\"
- `x`: T[n,C], rows
- `w`: T[V,C], a row for each word
- `targets`: i32[n], the right word of each row; -100: the row has none
- `stats`: A[n,2], statistics of each row's softmax for the backward part
- `logits`: T[n,P], the logits that the forward part keeps with {kept=1}; P is V rounded up to a multiple of 8
- `label_smoothing`: e in [0, 1]: the loss of a row is (1 - e) (-log p at its target) + e (mean over words of -log p)
- `z_loss`: z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row
- `reduction`: the mean or the sum of the losses of rows with a target, or a loss for each row (mean, sum, none)
- `kept`: 1: the logits are rounded to T and kept for the backward part; 0: the backward part computes them again

Returns `dx` T[n,C], gradient of x; `dw` T[V,C], gradient of w
"""
linear_cross_entropy_dx_kept(g::Graph, dloss, x, w, targets, stats, logits; label_smoothing::Real = 0.0, z_loss::Real =
    0.0, reduction::AbstractString = "mean", kept::Integer = 0) =
    results(2, add(g, "linear_cross_entropy_dx", Any[dloss, x, w, targets, stats, logits], Any[("label_smoothing",
        label_smoothing, 0.0), ("z_loss", z_loss, 0.0), ("reduction", reduction, "mean"), ("kept", kept, 0)]))

"""
    count_targets(g, targets)

The number of rows with a target, as cross_entropy counts them. Not differentiable.

- `targets`: i32[n], the right word of each row; -100: the row has none

Returns `count` f32[], the number of rows with a target
"""
count_targets(g::Graph, targets) =
    add(g, "count_targets", Any[targets], Any[])

"""
    mse(g, x, target)

The mean of (x - target)^2 over all elements, added in order in f64.

- `x`: T[any], any tensor
- `target`: T[any], the wanted values of x

Returns `loss` A[], the loss
"""
mse(g::Graph, x, target) =
    add(g, "mse", Any[x, target], Any[])

"""
    mse_dx(g, dloss, x, target)

The gradient 2 dloss (x - target) / elements of x in an mse. Not differentiable.

- `dloss`: A[], gradient of the loss
- `x`: T[any], any tensor
- `target`: T[any], the wanted values of x

Returns `dx` T[any], gradient of x
"""
mse_dx(g::Graph, dloss, x, target) =
    add(g, "mse_dx", Any[dloss, x, target], Any[])

"""
    preference_loss(g, losses, targets; ...)

The mean over pairs of a loss of the chosen text c and the rejected text r. With L and R the sums of losses and
reference over the N targets of a text, s = R - L and a = -L / N: sigmoid is -(1 - e) log sigmoid(z) - e log sigmoid(-z)
of z = b (s_c - s_r), hinge is max(0, 1 - z), ipo is (s_c / N_c - s_r / N_r - 1 / (2 b))^2, odds is -b log sigmoid(o_c -
o_r) of the log odds o = a - log(1 - exp(a)), and simpo is like sigmoid for z = b (a_c - a_r) - g. The reward of a text
is b s, or b a without a reference. A pair without any target is padding and does not count.

- `losses`: A[n], the loss -log p of each row: a cross_entropy with reduction \"none\"
- `targets`: i32[n], the right word of each row; -100: the row has none
- `rows`: rows of a text; chosen and rejected texts take turns
- `loss`: how a pair is judged (sigmoid, hinge, ipo, odds, simpo)
- `beta`: b > 0, the strength of the preference
- `label_smoothing`: e in [0, 1]: the share of pairs whose order is taken to be wrong, with sigmoid and simpo
- `margin`: the margin g of simpo

Returns `loss` A[], the loss; `rewards` A[4], means over pairs: the reward of the chosen and of the rejected text, the
share of pairs whose chosen text has the larger one, and the difference of both
"""
preference_loss(g::Graph, losses, targets; rows::Integer, loss::AbstractString = "sigmoid", beta::Real = 0.1,
    label_smoothing::Real = 0.0, margin::Real = 0.0) =
    results(2, add(g, "preference_loss", Any[losses, targets], Any[("rows", rows, missing), ("loss", loss, "sigmoid"),
        ("beta", beta, 0.1), ("label_smoothing", label_smoothing, 0.0), ("margin", margin, 0.0)]))

"""
    preference_loss_reference(g, losses, targets, reference; ...)

The mean over pairs of a loss of the chosen text c and the rejected text r. With L and R the sums of losses and
reference over the N targets of a text, s = R - L and a = -L / N: sigmoid is -(1 - e) log sigmoid(z) - e log sigmoid(-z)
of z = b (s_c - s_r), hinge is max(0, 1 - z), ipo is (s_c / N_c - s_r / N_r - 1 / (2 b))^2, odds is -b log sigmoid(o_c -
o_r) of the log odds o = a - log(1 - exp(a)), and simpo is like sigmoid for z = b (a_c - a_r) - g. The reward of a text
is b s, or b a without a reference. A pair without any target is padding and does not count.

- `losses`: A[n], the loss -log p of each row: a cross_entropy with reduction \"none\"
- `targets`: i32[n], the right word of each row; -100: the row has none
- `reference`: A[n], the losses of the same rows in the reference model
- `rows`: rows of a text; chosen and rejected texts take turns
- `loss`: how a pair is judged (sigmoid, hinge, ipo, odds, simpo)
- `beta`: b > 0, the strength of the preference
- `label_smoothing`: e in [0, 1]: the share of pairs whose order is taken to be wrong, with sigmoid and simpo
- `margin`: the margin g of simpo

Returns `loss` A[], the loss; `rewards` A[4], means over pairs: the reward of the chosen and of the rejected text, the
share of pairs whose chosen text has the larger one, and the difference of both
"""
preference_loss_reference(g::Graph, losses, targets, reference; rows::Integer, loss::AbstractString = "sigmoid",
    beta::Real = 0.1, label_smoothing::Real = 0.0, margin::Real = 0.0) =
    results(2, add(g, "preference_loss", Any[losses, targets, reference], Any[("rows", rows, missing), ("loss", loss,
        "sigmoid"), ("beta", beta, 0.1), ("label_smoothing", label_smoothing, 0.0), ("margin", margin, 0.0)]))

"""
    preference_loss_dx(g, dloss, losses, targets; ...)

The gradients of the losses and the reference of a preference_loss. Not differentiable.

- `dloss`: A[], gradient of the loss
- `losses`: A[n], the loss -log p of each row: a cross_entropy with reduction \"none\"
- `targets`: i32[n], the right word of each row; -100: the row has none
- `rows`: rows of a text; chosen and rejected texts take turns
- `loss`: how a pair is judged (sigmoid, hinge, ipo, odds, simpo)
- `beta`: b > 0, the strength of the preference
- `label_smoothing`: e in [0, 1]: the share of pairs whose order is taken to be wrong, with sigmoid and simpo
- `margin`: the margin g of simpo

Returns `dlosses` A[n], gradient of losses
"""
preference_loss_dx(g::Graph, dloss, losses, targets; rows::Integer, loss::AbstractString = "sigmoid", beta::Real = 0.1,
    label_smoothing::Real = 0.0, margin::Real = 0.0) =
    add(g, "preference_loss_dx", Any[dloss, losses, targets], Any[("rows", rows, missing), ("loss", loss, "sigmoid"),
        ("beta", beta, 0.1), ("label_smoothing", label_smoothing, 0.0), ("margin", margin, 0.0)])

"""
    preference_loss_dx_reference(g, dloss, losses, targets, reference; ...)

The gradients of the losses and the reference of a preference_loss. Not differentiable.

- `dloss`: A[], gradient of the loss
- `losses`: A[n], the loss -log p of each row: a cross_entropy with reduction \"none\"
- `targets`: i32[n], the right word of each row; -100: the row has none
- `reference`: A[n], the losses of the same rows in the reference model
- `rows`: rows of a text; chosen and rejected texts take turns
- `loss`: how a pair is judged (sigmoid, hinge, ipo, odds, simpo)
- `beta`: b > 0, the strength of the preference
- `label_smoothing`: e in [0, 1]: the share of pairs whose order is taken to be wrong, with sigmoid and simpo
- `margin`: the margin g of simpo

Returns `dlosses` A[n], gradient of losses; `dreference` A[n], gradient of reference
"""
preference_loss_dx_reference(g::Graph, dloss, losses, targets, reference; rows::Integer, loss::AbstractString =
    "sigmoid", beta::Real = 0.1, label_smoothing::Real = 0.0, margin::Real = 0.0) =
    results(2, add(g, "preference_loss_dx", Any[dloss, losses, targets, reference], Any[("rows", rows, missing),
        ("loss", loss, "sigmoid"), ("beta", beta, 0.1), ("label_smoothing", label_smoothing, 0.0), ("margin", margin,
        0.0)]))

"""
    dora_norm(g, w, a, b; ...)

The Euclidean norms of the rows of an adapted weight w + factor b a. Its gradient counts as 0. Not differentiable.

- `w`: T[O,I], weight
- `a`: T[R,I], first matrix of the adapter
- `b`: T[O,R], second matrix of the adapter
- `factor`: factor of the product b a
- `transposed`: 1: the weight is stored as T[I,O]

Returns `norms` T[O], norm of each row
"""
dora_norm(g::Graph, w, a, b; factor::Real, transposed::Bool = false) =
    add(g, "dora_norm", Any[w, a, b], Any[("factor", factor, missing), ("transposed", transposed, false)])

"""
    dora(g, base, product, m, norms, b)

The values that an adapter with magnitudes adds to the result of a linear: with c = m / norms, (c - 1) (base - b) + c
product. norms counts as a constant.

- `base`: T[n,O], products of rows and the weight, plus the bias
- `product`: T[n,O], products of rows and the adapter
- `m`: T[O], magnitude of each output
- `norms`: T[O], results of dora_norm
- `b`: T[O], bias in base

Returns `y` T[n,O], the sums
"""
dora(g::Graph, base, product, m, norms, b = nothing) =
    add(g, "dora", Any[base, product, m, norms, b], Any[])

"""
    dora_dx(g, dy, m, norms)

The gradients (c - 1) dy and c dy of base and product of a dora. Not differentiable.

- `dy`: T[n,O], gradient of the result
- `m`: T[O], magnitude of each output
- `norms`: T[O], results of dora_norm

Returns `dbase` T[n,O], gradient of base; `dproduct` T[n,O], gradient of product
"""
dora_dx(g::Graph, dy, m, norms) =
    results(2, add(g, "dora_dx", Any[dy, m, norms], Any[]))

"""
    dora_dm(g, dy, base, product, norms, b)

The gradient of the magnitudes of a dora: the sum over rows of dy (base - b + product) / norms. Not differentiable.

- `dy`: T[n,O], gradient of the result
- `base`: T[n,O], products of rows and the weight, plus the bias
- `product`: T[n,O], products of rows and the adapter
- `norms`: T[O], results of dora_norm
- `b`: T[O], bias in base

Returns `dm` T[O], gradient of m
"""
dora_dm(g::Graph, dy, base, product, norms, b = nothing) =
    add(g, "dora_dm", Any[dy, base, product, norms, b], Any[])

end
