// A process of its own: what other tests take would count here.
use ds::{Comm, CommOptions, Graph, Tensor};

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn ten_thousand_handles_leave_nothing_behind() {
    let cycle = || {
        let tensor = Tensor::zeros::<f32>(&[64, 64]).unwrap();
        let mut graph = Graph::new("linear", 4).unwrap();
        let x = graph.input::<f32>("x", &[None, Some(3)]).unwrap();
        graph.param("w", &[2, 3], "normal", 0.1).unwrap();
        graph.output("loss", x).unwrap();
        let comm = Comm::join("self", &CommOptions::default()).unwrap();
        drop((tensor, graph, comm));
    };
    (0..500).for_each(|_| cycle());
    let before = resident();
    (0..10_000).for_each(|_| cycle());
    let grown = resident().saturating_sub(before);
    assert!(grown < 2 << 20, "{grown} bytes");
}
