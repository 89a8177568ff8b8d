# One rank of three, started by `libds launch`.
include("common.jl")

comm = Comm("env")
r = Libds.rank(comm)
@test size(comm) == 3

# A group over functions of this program. Here the functions use named pipes, one from each rank to
# each other rank.
pipes = strip(String(Libds.broadcast!(comm, Vector{UInt8}(rpad(r == 0 ? mktempdir() : "", 200)))))
pipe(from, to) = joinpath(pipes, "$from-$to")
others = [o for o in 0:2 if o != r]
foreach(to -> run(`mkfifo $(pipe(r, to))`), others)
Libds.barrier(comm)
# A pipe that is opened for both reading and writing does not wait for another process.
ends = Dict((a, b) => open(pipe(a, b), "r+") for a in 0:2 for b in 0:2 if a != b && r in (a, b))
put(data, to) = (write(ends[r, to], data); flush(ends[r, to]))
take!(data, from) = (read!(ends[from, r], data); nothing)
function exchange(outgoing, incoming)
    @test isempty(outgoing[r+1]) && isempty(incoming[r+1])
    foreach(to -> isempty(outgoing[to+1]) || put(outgoing[to+1], to), others)
    foreach(from -> isempty(incoming[from+1]) || take!(incoming[from+1], from), others)
end
own = Comm(exchange; rank = r, size = 3, send = put, receive = take!)
@test Libds.all_reduce!(own, Float32[r, 0.1]) == Libds.all_reduce!(comm, Float32[r, 0.1])
@test Libds.all_gather(own, Int32[r, -r]) == [0 1 2; 0 -1 -2]
@test Libds.all_to_all(own, UInt8[3r, 3r + 1, 3r + 2]) == [r, r + 3, r + 6]
r == 0 && Libds.send(own, UInt8[1, 2, 3], 2)
r == 2 && @test Libds.receive!(own, zeros(UInt8, 3), 0) == [1, 2, 3]
@test size(Libds.split(own, r == 0 ? 0 : 1)) == (r == 0 ? 1 : 2)
without = Comm((a...) -> exchange(a...); rank = r, size = 3)
refused(() -> Libds.split(without, 0), Libds.DS_ERROR_UNSUPPORTED, "split")
@test failure(() -> Comm((a...) -> error("of the wire"); rank = r, size = 3)).msg == "of the wire"
refused(() -> Comm(exchange; rank = 3, size = 3), Libds.DS_ERROR_INVALID_ARGUMENT, "rank must be 0 to 2, got 3")
GC.gc()

@test Libds.all_reduce!(comm, Float32[r, 1]) == [3, 3]
@test Libds.all_reduce!(comm, Int64[10r]; op = :max) == [20]
@test Libds.all_gather(comm, Int32[r, -r]) == [0 1 2; 0 -1 -2]
@test Libds.reduce_scatter(comm, Float64[1 2 3; r r r]) == reshape([3.0 * (r + 1), 3], 2, 1)
@test Libds.reduce_scatter(comm, Float16[0.5 0.5 0.5]) == [1.5f0][:, :]
@test Libds.all_to_all(comm, UInt8[3r, 3r + 1, 3r + 2]) == [r, r + 3, r + 6]
@test Libds.broadcast!(comm, [r == 1 ? 7.5 : 0.0], 1) == [7.5]
r == 0 && Libds.send(comm, UInt8[1, 2, 3], 2)
r == 2 && @test Libds.receive!(comm, zeros(UInt8, 3), 0) == [1, 2, 3]
part = Libds.split(comm, r == 0 ? nothing : 0)
@test r == 0 ? part === nothing : size(part) == 2
Libds.barrier(comm)
@test occursin("barrier", Libds.flight_record(comm, :json))

# Runs and starts every operation over a list of two arrays, or over blocks of unequal size.
of(rank) = [Int64[rank + 1, 10], fill(Int64(rank), 3)]
wide(rank) = [Int64[10rank, 10rank + 1, 10rank + 2]]
for call in (Libds.collective, (a...; options...) -> fetch(Libds.start(a...; options...)))
    @test call(comm, :all_reduce, of(r)) == [[6, 30], [3, 3, 3]]
    @test call(comm, :all_reduce, of(r); op = :min) == of(0)
    @test call(comm, :all_reduce, [Float16[r]]; op = :mean) == [[1.0f0]]
    @test call(comm, :all_gather, of(r)) == [[1, 10, 2, 10, 3, 10], [0, 0, 0, 1, 1, 1, 2, 2, 2]]
    @test call(comm, :reduce_scatter, wide(r)) == [[30 + 3r]]
    @test call(comm, :all_to_all, wide(r)) == [[r, 10 + r, 20 + r]]
    for root in 0:2
        @test call(comm, :broadcast, of(r); root = root) == of(root)
        @test call(comm, :reduce, of(r); root = root) == (r == root ? [[6, 30], [3, 3, 3]] : [[], []])
        @test call(comm, :gather, [Int32[r]]; root = root) == (r == root ? [[0, 1, 2]] : [[]])
        given = r == root ? wide(root) : Vector{Int64}[]
        @test call(comm, :scatter, given; counts = [1], root = root) == [[10root + r]]
    end
    @test call(comm, :all_gather, [fill(UInt8(r), r)]; blocks = 0:2) == [[1, 2, 2]]
    @test call(comm, :reduce_scatter, [Float32[1, 2, 2]]; blocks = 0:2) == [fill(3.0f0r, r)]
    @test call(comm, :all_to_all, [fill(Int64(r), 6)]; blocks = 1:3, out_blocks = fill(r + 1, 3)) ==
        [repeat([0, 1, 2]; inner = r + 1)]
    @test isempty(call(comm, :barrier))
end

# Started collectives overlap and end in order, and a direct collective waits for them. libds keeps
# their arrays alive, even if nothing else refers to them.
works = [Libds.start(comm, :all_reduce, [fill(Float32(i), 5000)]) for i in 1:10]
for i in 1:20
    Libds.start(comm, :all_reduce, [fill(Float32(i), 50_000)])
    GC.gc()
    fresh = [fill(-1.0f0, 50_000) for _ in 1:4]  # where freed arrays would lie
    sleep(0.002r)
    @test all(f -> all(f .== -1), fresh)
end
Libds.barrier(comm)
@test all(Libds.isdone, works)
@test all(fetch(works[i])[1] == fill(3.0f0i, 5000) for i in 10:-1:1)

Libds.log_start(comm)
Libds.all_gather(comm, UInt8[1])
@test occursin("all_gather", Libds.log(comm)) && occursin("all_gather", Libds.log(comm, :json))

config = """{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0, "zero_optimization": {"stage": 3},
    "optimizer": {"type": "SGD", "params": {"lr": 0.5}}}"""
engine = Engine(config; comm = comm, init = (p, name, first, values) -> values .= first .+ (1:length(values)))
p, q = Libds.add_param!(engine, "p", 5), Libds.add_param!(engine, "q", 5)
Libds.start!(engine)
Libds.gather(engine, p) do values
    @test values == 1:5
    Libds.grad_ready!(engine, p, fill(Float32(r), 5))  # the mean over ranks 0, 1, 2 is 1
end
Libds.backward!(engine)
Libds.step!(engine)
@test read(engine, p) == [0.5, 1.5, 2.5, 3.5, 4.5]
folder = Libds.broadcast!(comm, Vector{UInt8}(rpad(r == 0 ? mktempdir() : "", 200)))
folder = strip(String(folder))
Libds.save(engine, folder)
write(engine, p, "master", zeros(Float32, 5))
Libds.load!(engine, folder)
@test read(engine, p) == [0.5, 1.5, 2.5, 3.5, 4.5]

# Random sequences of calls have the same answers on all ranks.
include("dice.jl")
for seed in 1:20
    answers = sequence(comm, comm, seed, folder)
    @test length(unique(Libds.all_gather(comm, [reinterpret(Int64, hash(answers))]))) == 1
end

# An error in the function of one rank is an exception on all ranks.
e = failure(() -> Engine(CONFIG, linear_graph(); comm = comm,
                         init = (a...) -> r == 1 && error("of rank 1")))
@test r == 1 ? e.msg == "of rank 1" : e.status == Libds.DS_ERROR_USER

# Ranks that diverge get an error: the engine says that it is lost, and the group has ended.
Libds.grad_ready!(engine, r == 1 ? q : p, ones(Float32, 5))
e = failure() do
    Libds.backward!(engine)
    Libds.step!(engine)
end
@test e.status == Libds.DS_ERROR_COMM && occursin("in another order than rank", e.message)
refused(() -> Libds.step!(engine), Libds.DS_ERROR_POISONED, "in another order than rank")
refused(() -> Libds.barrier(comm), Libds.DS_ERROR_COMM, "in another order than rank")

# The error about different collectives names both calls.
other = Comm("env:shm://julia-ranks-$(ccall(:getppid, Cint, ()))"; timeout_ms = 20_000)
e = failure(() -> r == 1 ? Libds.barrier(other) : Libds.all_reduce!(other, Float32[1]))
@test e.status == Libds.DS_ERROR_COMM && occursin("ds_comm_barrier", e.message) && occursin("ds_comm_submit", e.message)
work = failure(() -> fetch(Libds.start(other, :barrier)))
@test work.status == Libds.DS_ERROR_COMM
