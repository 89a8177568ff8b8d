# Handles of every kind; some depend on others.
function a_handle_of_every_kind()
    c, g = Comm("self"), linear_graph()
    e = Engine(CONFIG, g; comm = c)
    Libds.train_batch!(e, batch()...)
    host = Engine(CONFIG; comm = Comm("self"), init = (a...) -> nothing)
    p = Libds.add_param!(host, "p", 3)
    Libds.start!(host)
    y = Libds.infer(e, batch()[1], nothing)
    Any[c, g, e, host, Libds.split(c, 0), Plan(CONFIG, g), y, Libds.Capsule(y), Tensor(ones(3)), Libds.Capsule(ones(3)),
        Libds.start(c, :all_reduce, [ones(Float32, 50_000)])]
end
