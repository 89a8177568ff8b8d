# Tensors on a device whose memory the host cannot access, and the order of work on its streams.

on(device) = Engine(replace(CONFIG, "{\"train" => "{\"device\": \"$device\", \"train"), linear_graph(); threads = 1)

@testset "copies are ordered and keep what they use" begin
    refused(() -> Libds.Stream(on("cpu")), Libds.DS_ERROR_UNSUPPORTED, "device 'cpu' has no streams")
    e = on("separate")
    s = Libds.Stream(e)
    t = Tensor(Float32, 100, 100; stream = s)
    @test Libds.device(t) == "separate" && size(t) == (100, 100)
    refused(() -> Array(t), Libds.DS_ERROR_INVALID_ARGUMENT, "must be on the host for an array, got device 'separate'")
    outs = Tensor[]
    for i in 1:300
        other = Tensor(Float32, 100, 100; stream = s)
        copyto!(other, fill(Float32(i), 100, 100); stream = s)  # nothing else refers to the array
        copyto!(t, other; stream = s)
        i % 2 == 0 && close(other)  # waits for the work that uses it
        push!(outs, copyto!(Tensor(Float32, 100, 100), t; stream = s))
        i % 50 == 0 && GC.gc()
    end
    close(e)
    Libds.synchronize(s)
    @test all(all(Array(outs[i]) .== i) for i in 1:300)
    refused(() -> copyto!(t, zeros(Float32, 10); stream = s), Libds.DS_ERROR_INVALID_ARGUMENT, "to and from must have one type and shape")
    copyto!(t, zeros(Float32, 100, 100); stream = s)
    close(s)
    refused(() -> Libds.synchronize(s), Libds.DS_ERROR_STATE, "this Stream is closed")
    foreign = Libds.Stream(on("separate"))
    e = on("separate")
    refused(() -> Libds.train_batch!(e, batch()...; stream = foreign), Libds.DS_ERROR_INVALID_ARGUMENT, "made for this engine")
    refused(() -> Libds.train_batch!(on("cpu"), batch()...; stream = foreign), Libds.DS_ERROR_INVALID_ARGUMENT, "NULL on device")
end

@testset "random work on streams has the bits of the host" begin
    for seed in 1:10
        d = Dice(seed)
        host, device = on("cpu"), on("separate")
        streams = [Libds.Stream(device), Libds.Stream(device)]
        for _ in 1:30
            s, rows = one_of(d, streams), 1 + below(d, 4)
            numbers(columns) = Float32[below(d, 1000) / 500 - 1 for _ in 1:columns, _ in 1:rows]
            x, target = numbers(3), numbers(2)
            put(a) = one_in(d, 3) ? a : copyto!(Tensor(Float32, size(a)...; stream = s), copy(a); stream = s)
            dx, dt, which = put(x), put(target), below(d, 4)
            if which == 0
                @test Libds.eval_batch(host, x, target) == Libds.eval_batch(device, dx, dt; stream = s)
            elseif which == 1
                y = Libds.infer(device, dx, nothing; stream = s)
                back = copyto!(Tensor(Float32, size(y)...), y; stream = s)
                Libds.synchronize(s)
                @test Array(back) == Array(Libds.infer(host, x, nothing))
            elseif which == 2
                @test Libds.forward!(host, x, target) == Libds.forward!(device, dx, dt; stream = s)
                foreach(e -> (Libds.backward!(e); Libds.step!(e)), (host, device))
            else
                @test Libds.train_batch!(host, x, target) == Libds.train_batch!(device, dx, dt; stream = s)
            end
            one_in(d, 10) && GC.gc()
        end
        @test all(read(host, p) == read(device, p) for p in 0:1)
    end
    GC.gc()
end

@testset "gradients and values on the device" begin
    e = Engine("""{"device": "separate", "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0,
                  "optimizer": {"type": "SGD", "params": {"lr": 0.5}}}""")
    p = Libds.add_param!(e, "p", 3)
    Libds.start!(e)
    s = Libds.Stream(e)
    for step in 1:3
        Libds.gather(v -> (@test v == fill(1.0f0 - step, 3)), e, p)
        g = copyto!(Tensor(Float32, 3; stream = s), fill(2.0f0, 3); stream = s)
        Libds.grad_ready!(e, p, g; stream = s)
        Libds.backward!(e)
        Libds.step!(e)
        @test read(e, p) == fill(-Float32(step), 3)
    end
end
