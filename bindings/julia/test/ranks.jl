# One rank of three, started by `libds launch`.
using Libds, Test

comm = Comm("env")
r = Libds.rank(comm)
@test size(comm) == 3
@test Libds.all_reduce!(comm, Float32[r, 1]) == [3, 3]
@test Libds.all_reduce!(comm, Int64[10r]; op = :max) == [20]
@test Libds.all_gather(comm, Int32[r, -r]) == [0 1 2; 0 -1 -2]
@test Libds.reduce_scatter(comm, Float64[1 2 3; r r r]) == reshape([3.0 * (r + 1), 3], 2, 1)
@test Libds.all_to_all(comm, UInt8[3r, 3r + 1, 3r + 2]) == [r, r + 3, r + 6]
@test Libds.broadcast!(comm, [r == 1 ? 7.5 : 0.0], 1) == [7.5]
r == 0 && Libds.send(comm, UInt8[1, 2, 3], 2)
r == 2 && @test Libds.receive!(comm, zeros(UInt8, 3), 0) == [1, 2, 3]
part = Libds.split(comm, r == 0 ? nothing : 0)
@test r == 0 ? part === nothing : size(part) == 2
Libds.barrier(comm)
@test occursin("barrier", Libds.flight_record(comm, :json))

config = """{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0, "zero_optimization": {"stage": 3},
    "optimizer": {"type": "SGD", "params": {"lr": 0.5}}}"""
engine = Engine(config; comm = comm)
p = Libds.add_param!(engine, "p", 5)
Libds.start!(engine)
write(engine, p, "master", Float32[1, 2, 3, 4, 5])
Libds.gather(engine, p) do values
    Libds.grad_ready!(engine, p, fill(Float32(r), 5))  # the mean over ranks 0, 1, 2 is 1
end
Libds.backward!(engine)
Libds.step!(engine)
@test read(engine, p) == [0.5, 1.5, 2.5, 3.5, 4.5]
