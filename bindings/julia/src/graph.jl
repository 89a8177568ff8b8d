# Graphs and plans.

"""
A model graph. `Graph(name, bound)` creates an empty graph, `Graph(config)` the model of a
configuration; `parse(Graph, text)` reads the text form.
"""
mutable struct Graph <: Handle
    raw::Ptr{ds_graph}
    Graph(raw::Ptr{ds_graph}) = made(new(raw))
end
destroy(::Graph, at) = ds_graph_destroy(at)

function graph_of(make)
    out = Ref{Ptr{ds_graph}}(C_NULL)
    check(make(out))
    Graph(out[])
end
Graph(name::AbstractString, bound::Integer) = graph_of(out -> ds_graph_create(name, bound, out))
Graph(config::AbstractString; size = 1) = graph_of(out -> ds_graph_from_config(config, size, out))
Base.parse(::Type{Graph}, text::AbstractString) = graph_of(out -> ds_graph_parse(text, out))
Base.string(g::Graph) = GC.@preserve g text_of(out -> ds_graph_print(raw(g), out))

# Converts dimensions in Julia's order, in which the rows of a micro-step, written `:`, are the last
# dimension.
graph_dims(dims) = Int64[d === Colon() ? -1 : d for d in reverse(dims)]

function value_of(make)
    out = Ref{Int32}(-1)
    check(make(out))
    out[]
end
"Adds an input. If it has the rows of a micro-step, its last dimension is `:`."
input!(g::Graph, name, T::Type, dims...) = GC.@preserve g value_of(out ->
    (d = graph_dims(dims); ds_graph_input(raw(g), name, dtype_of(T), d, length(d), out)))
"Adds a parameter; `init` is \"zeros\", \"ones\" or \"normal\" with standard deviation `scale`."
param!(g::Graph, name, dims::Integer...; init = "zeros", scale = 0.0) = GC.@preserve g value_of(out ->
    (d = graph_dims(dims); ds_graph_param(raw(g), name, d, length(d), init, scale, out)))
"Adds an operation of docs/reference/ops.md; `attrs` is JSON."
op!(g::Graph, op, inputs...; attrs = nothing) = GC.@preserve g value_of(out ->
    ds_graph_op(raw(g), op, Int32[inputs...], length(inputs), optional(attrs), out))
"Makes a value the next output: the first output is the loss, and `infer` returns the second."
output!(g::Graph, name, value) = GC.@preserve g check(ds_graph_output(raw(g), name, value))
"Returns the value of the output, input, parameter or result of this name."
find(g::Graph, name) = GC.@preserve g value_of(out -> ds_graph_find(raw(g), name, out))

"Returns the dimensions of a value; `:` is the number of rows of a micro-step."
function dims(g::Graph, value)
    out, count = zeros(Int64, 8), Ref{Csize_t}(0)
    GC.@preserve g check(ds_graph_value_info(raw(g), value, C_NULL, out, 8, count))
    Tuple(d == -1 ? Colon() : Int(d) for d in reverse(out[1:count[]]))
end

"""
Appends the gradients of the scalar `loss` for `values` and returns them, with nothing for a value on which it does not depend.
May be called once per graph.
Training does not need this call: a differentiated graph is for printing and study.
"""
function grad!(g::Graph, loss, values)
    out = fill(Int32(-1), length(values))
    GC.@preserve g check(ds_graph_grad(raw(g), loss, Int32[values...], length(values), out))
    [v < 0 ? nothing : v for v in out]
end

# ---------------------------------------------------------------- plan

"The step of a configuration, compiled for one rank, without memory or communication."
mutable struct Plan <: Handle
    raw::Ptr{ds_plan}
    function Plan(config::AbstractString, graph::Union{Graph,Nothing} = nothing; rank = 0, size = 1)
        out = Ref{Ptr{ds_plan}}(C_NULL)
        GC.@preserve graph check(ds_plan_create(config, raw(graph), rank, size, out))
        made(new(out[]))
    end
end
destroy(::Plan, at) = ds_plan_destroy(at)
report(p::Plan, format = :text) = GC.@preserve p text_of(out -> ds_plan_report(raw(p), format_of(format), out))
Base.string(p::Plan) = GC.@preserve p text_of(out -> ds_plan_print(raw(p), out))

# Passes the handles of the plans of several ranks to a call.
with_plans(call, plans) = GC.@preserve plans text_of(out -> call(Ptr{ds_plan}[raw(p) for p in plans], length(plans), out))
"Returns an SVG document that shows the work of each queue of these ranks over a step."
picture(plans::AbstractVector{Plan}) = with_plans(ds_plan_picture, plans)
"Returns the certificate of the plans of all ranks, for a checker that shares no code with libds."
certificate(plans::AbstractVector{Plan}) = with_plans(ds_plan_certificate, plans)
