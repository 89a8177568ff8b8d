// This test is a process of its own, because the memory of other tests would count here.
mod common;
use common::*;
use ds::{Collective, Comm, CommOptions, Engine, EngineOptions, Graph, ReduceOp, Tensor, View};

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Returns the bytes that `count` calls leak, after a tenth as many calls, which fill caches that grow only once.
fn grown(count: usize, cycle: impl Fn(usize)) -> usize {
    (0..count / 10).for_each(&cycle);
    let before = resident();
    (0..count).for_each(&cycle);
    resident().saturating_sub(before)
}

#[test]
fn ten_thousand_handles_leave_nothing_behind() {
    let handles = grown(10_000, |i| {
        let tensor = Tensor::zeros::<f32>(&[64, 64]).unwrap();
        let mut graph = Graph::new("linear", 4).unwrap();
        let x = graph.input::<f32>("x", &[None, Some(3)]).unwrap();
        graph.param("w", &[2, 3], "normal", 0.1).unwrap();
        graph.output("loss", x).unwrap();
        let comm = Comm::join("self", &CommOptions::default()).unwrap();
        let managed = Tensor::from_vec(vec![0f32; 4096], &[64, 64]).unwrap().into_dlpack().unwrap();
        let mut made: Vec<Box<dyn std::any::Any>> = vec![Box::new(tensor), Box::new(graph), Box::new(comm), Box::new(managed)];
        while !made.is_empty() {
            drop(made.swap_remove(i % made.len()));
        }
    });
    assert!(handles < 2 << 20, "{handles} bytes");
    let comm = Comm::join("self", &CommOptions::default()).unwrap();
    let works = grown(10_000, |i| {
        let work = comm.start(Collective::all_reduce(vec![vec![1.0f32; 1000]], ReduceOp::Sum)).unwrap();
        match i % 3 {
            0 => drop(work.wait().unwrap()),
            1 => drop(work),
            _ => assert!(View::of(&[1.0f32; 2], &[3]).is_err()),
        }
    });
    assert!(works < 2 << 20, "{works} bytes");
    // Engines allocate threads and arenas, so a smaller number of them also reveals a leak.
    let engines = grown(300, |_| {
        let options = EngineOptions { threads: 1, ..EngineOptions::default() }.init(|_| Ok(()));
        let mut engine = Engine::new(CONFIG, Some(&linear_graph()), options).unwrap();
        let (x, target) = batch();
        engine.train_batch(&inputs(&x, &target)).unwrap();
        let _ = Engine::new("{}", None, EngineOptions::default().init(|_| Ok(())));
    });
    assert!(engines < 4 << 20, "{engines} bytes");
}
