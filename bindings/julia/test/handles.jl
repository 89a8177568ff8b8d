# Handles end in any order and leak nothing.

# Returns the bytes that `count` calls leak. The collector's heap grows in jumps, for several rounds on a busy machine,
# but a leak grows in every round. So the least growth of up to 20 rounds counts, and the first round without growth
# ends them.
function grown(cycle, count)
    least, before = typemax(Int), 0
    for round in 0:20
        foreach(cycle, 1:count)
        foreach(_ -> GC.gc(), 1:3)
        now = resident()
        round > 0 && (least = min(least, now - before))
        before = now
        least <= 0 && break
    end
    least
end

@testset "ten thousand handles leave nothing behind, in any order" begin
    c = Comm("self")
    @test grown(2_500) do i
        made = Any[Tensor(Float32, 64, 64), Graph("g", 4), Comm("self"), Libds.Capsule(zeros(Float32, 4096))]
        for k in ((1, 2, 3, 4), (3, 1, 4, 2), (2, 4, 3, 1))[i%3+1]
            close(made[k])
        end
        work = Libds.start(c, :all_reduce, [ones(Float32, 100)])
        i % 2 == 0 && fetch(work)
    end < 1 << 20
    @test grown(100) do i
        e = Engine(CONFIG, linear_graph(); threads = 1, init = (a...) -> nothing)
        Libds.train_batch!(e, batch()...)
        close(e)
    end < 1 << 20
end

include("kinds.jl")

@testset "handles are closed, collected and left in any order" begin
    state = UInt64(1)
    below(n) = (state = state * 6364136223846793005 + 1442695040888963407; Int(state >> 33) % n)
    for _ in 1:30
        handles = a_handle_of_every_kind()
        while !isempty(handles)
            handle = splice!(handles, below(length(handles)) + 1)
            below(2) == 0 && close(handle)
            handle = nothing
            below(8) == 0 && GC.gc()
        end
    end
    GC.gc()
    # A process may end while handles are open.
    for exits in ("", "exit(0)")
        code = """include("$(joinpath(HERE, "common.jl"))"); include("$(joinpath(HERE, "kinds.jl"))")
                  const kept = a_handle_of_every_kind(); close(kept[1]); $exits"""
        @test success(pipeline(`$(Base.julia_cmd()) --project=$(dirname(HERE)) -e $code`; stderr = stderr))
    end
end
