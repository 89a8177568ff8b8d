# A host that computes its own backward pass.

@testset "a host with gradients of its own" begin
    e = Engine("""{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0,
                  "optimizer": {"type": "SGD", "params": {"lr": 0.5}}}""";
               init = (p, name, first, values) -> values .= first .+ (1:length(values)))
    p = Libds.add_param!(e, "p", 5)
    @test status(() -> Libds.gather(identity, e, p)) == Libds.DS_ERROR_STATE
    Libds.start!(e)
    address = Ref{Any}(nothing)
    Libds.gather(e, p) do values
        @test values == 1:5
        Libds.grad_ready!(e, p, ones(Float32, 5))
    end
    Libds.backward!(e)
    Libds.step!(e)
    @test read(e, p) == (1:5) .- 0.5f0
    for s in 1:2
        Libds.gather(v -> nothing, e, p)
        Libds.write_grad!(g -> g .= 1, e, p)
        Libds.backward!(e)
        Libds.step!(e)
        @test read(e, p) == (1:5) .- 0.5f0 * (s + 1)
    end
    Libds.evaluate!(e, true)
    @test status(() -> Libds.backward!(e)) == Libds.DS_ERROR_STATE
    @test Libds.gather(sum, e, p) == 7.5
    Libds.evaluate!(e, false)
    @test failure(() -> Libds.gather(v -> error("of the host"), e, p)).msg == "of the host"
    folder = mktempdir()
    Libds.attach!(e, "random", Int64[1 2 3; 4 5 6])
    refused(() -> Libds.attach!(e, "", [1.0]), Libds.DS_ERROR_INVALID_ARGUMENT, "name must not be empty")
    Libds.save(e, folder, """{"client_state": {"epoch": 2}}""")
    write(e, p, "master", zeros(Float32, 5))
    @test Libds.load!(e, folder) == "{\"epoch\": 2}"
    @test Array(Libds.attachment(e, "random")) == [1 2 3; 4 5 6]
    refused(() -> Libds.attachment(e, "random", 1), Libds.DS_ERROR_NOT_FOUND, "got 1")
    @test read(e, p) == (1:5) .- 1.5f0
    broken = Engine("{\"train_batch_size\": 1}"; init = (a...) -> error("no values"))
    Libds.add_param!(broken, "p", 5)
    @test failure(() -> Libds.start!(broken)).msg == "no values"
    @test status(() -> Libds.start!(broken)) == Libds.DS_ERROR_POISONED
end

@testset "an update in Julia" begin
    config = """{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0,
                 "optimizer": {"type": "Callback", "params": {"lr": 0.5, "states": ["age"]}}}"""
    seen = []
    function rule(u)
        u.states[1] .= u.update
        u.values .-= Float32(u.lr) .* u.grads
        push!(seen, (u.param, u.first, length(u.values)))
    end
    e = Engine(config; threads = 1, update = rule)
    p = Libds.add_param!(e, "p", 3)
    Libds.start!(e)
    for s in 1:2
        Libds.grads_ready!(e, [p], [fill(100.0f0, 3)])
        Libds.drop_step!(e)
        Libds.grads_ready!(e, [p], [Float32[1, 2, 3]])
        Libds.backward!(e)
        Libds.step!(e)
    end
    @test read(e, p) == [-1, -2, -3] && read(e, p, "age") == [2, 2, 2]
    @test seen == [(p, 0, 3), (p, 0, 3)]
    broken = Engine(config; threads = 1, update = u -> error("no update"))
    p = Libds.add_param!(broken, "p", 3)
    Libds.start!(broken)
    Libds.grads_ready!(broken, [p], [Float32[1, 2, 3]])
    Libds.backward!(broken)
    @test failure(() -> Libds.step!(broken)).msg == "no update"
    @test status(() -> Libds.step!(broken)) == Libds.DS_ERROR_POISONED
    refused(() -> Engine("{\"train_batch_size\": 1}"; update = rule) |> e -> (Libds.add_param!(e, "p", 3); Libds.start!(e)),
            Libds.DS_ERROR_CONFIG, "with an update")
end

function host()
    e = Engine("""{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0,
                  "optimizer": {"type": "SGD", "params": {"lr": 1}}}""")
    p, q = Libds.add_param!(e, "p", 2), Libds.add_param!(e, "q", 2)
    Libds.start!(e)
    e, p, q
end

@testset "whole parameters need no lease and gradients come as a list" begin
    e, p, q = host()
    view = Libds.param_view(e, p)
    for s in 1:2
        Libds.grads_ready!(e, [p, q], [ones(Float32, 2), fill(2.0f0, 2)])
        Libds.backward!(e)
        Libds.step!(e)
        @test Array(view) == [-s, -s] && Array(Libds.param_view(e, q)) == [-2s, -2s]
    end
    refused(() -> Libds.grads_ready!(e, [p, q], [ones(Float32, 2)]), Libds.DS_ERROR_INVALID_ARGUMENT, "got 2 parameters")
    close(view)
end

@testset "leases lie within leases" begin
    e, p, q = host()
    write(e, p, "master", Float32[1, 2])
    Libds.gather(e, p) do outer
        Libds.gather(e, p, q) do inner, other
            @test inner == [1, 2] && pointer(inner) == pointer(outer) && other == [0, 0]
        end
        @test outer == [1, 2]
        Libds.write_grad!(g -> g .= 1, e, p)
        Libds.backward!(e)
        refused(() -> Libds.step!(e), Libds.DS_ERROR_STATE, "is leased")
    end
    Libds.step!(e)
    @test read(e, p) == [0, 1]
end

@testset "bad gradients are refused and the engine goes on" begin
    e, p, q = host()
    bad, state, two = Libds.DS_ERROR_INVALID_ARGUMENT, Libds.DS_ERROR_STATE, ones(Float32, 2)
    refused(() -> Libds.grad_ready!(e, p, ones(Int32, 2)), bad, "i32")
    refused(() -> Libds.grad_ready!(e, p, ones(Float32, 3)), bad, "3")
    refused(() -> Libds.grad_ready!(e, p, view(ones(Float32, 4), [1, 3])), bad, "must be strided memory")
    refused(() -> Libds.grad_ready!(e, 9, two), bad, "9")
    Libds.grad_ready!(e, p, view(ones(Float32, 4), 1:2:3))  # a missing gradient counts as zero
    refused(() -> Libds.grad_ready!(e, p, two), state, "has its gradient")
    Libds.backward!(e)
    refused(() -> Libds.grad_ready!(e, q, two), state, "comes after 1 of 1 micro-steps")
    Libds.step!(e)
    @test (read(e, p), read(e, q)) == ([-1, -1], [0, 0])
    Libds.grad_ready!(e, q, Float32[NaN, 1])
    Libds.backward!(e)
    Libds.step!(e)
    @test Libds.last_step(e).skipped && occursin("gradient norm nan", Libds.skip_reason(e))
    @test failure(() -> Libds.write_grad!(g -> error("of the host"), e, p)).msg == "of the host"
    Libds.grad_ready!(e, p, two)
    Libds.backward!(e)
    Libds.step!(e)
    @test read(e, p) == [-2, -2]
end

@testset "compute types of 16 bits" begin
    e = Engine("""{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0, "bf16": {"enabled": true},
                  "optimizer": {"type": "SGD", "params": {"lr": 0.5}}}""")
    p = Libds.add_param!(e, "p", 2)
    Libds.start!(e)
    write(e, p, "master", Float32[1.5, -3])
    Libds.gather(e, p) do values
        @test eltype(values) == Libds.BFloat16Bits && Float32.(values) == [1.5, -3]
        Libds.write_grad!(g -> fill!(g, Libds.BFloat16Bits(2)), e, p)
    end
    Libds.backward!(e)
    Libds.step!(e)
    @test read(e, p) == [0.5, -4]
end
