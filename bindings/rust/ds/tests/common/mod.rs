// Shared by the tests.
#![allow(dead_code)]
use ds::{Comm, CommOptions, Error, Graph, Status, View};
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

pub const CONFIG: &str = r#"{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 0,
    "optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "zero_optimization": {"stage": 2}}"#;

/// A folder that is removed at the end of its test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("ds-rust-{}-{name}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Scratch(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl std::ops::Deref for Scratch {
    type Target = std::path::Path;
    fn deref(&self) -> &std::path::Path {
        &self.0
    }
}

/// A model folder of the C++ tests.
pub fn model(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data/models").join(name)
}

/// Returns a graph of y = x * w + b with a mean squared error; output 1 is y.
pub fn linear_graph() -> Graph {
    let mut graph = Graph::new("linear", 4).unwrap();
    let x = graph.input::<f32>("x", &[None, Some(3)]).unwrap();
    let target = graph.input::<f32>("target", &[None, Some(2)]).unwrap();
    let w = graph.param("w", &[2, 3], "normal", 0.1).unwrap();
    let b = graph.param("b", &[2], "zeros", 0.0).unwrap();
    let y = graph.op("linear", &[x, w, b], None).unwrap();
    let loss = graph.op("mse", &[y, target], None).unwrap();
    assert_eq!(graph.dims(y).unwrap(), [None, Some(2)]);
    graph.output("loss", loss).unwrap();
    graph.output("prediction", y).unwrap();
    graph
}

pub fn batch() -> (Vec<f32>, Vec<f32>) {
    let x: Vec<f32> = (0..12).map(|i| (i % 5) as f32 * 0.25 - 0.5).collect();
    let target = x.chunks(3).flat_map(|r| [r[0] - r[1], 0.5 * r[2] + 1.0]).collect();
    (x, target)
}

/// The inputs of the linear graph.
pub fn inputs<'a>(x: &'a [f32], target: &'a [f32]) -> [View<'a>; 2] {
    [View::of(x, &[4, 3]).unwrap(), View::of(target, &[4, 2]).unwrap()]
}

/// Runs `body` as every rank of a group of threads.
pub fn ranks(name: &str, size: i32, body: impl Fn(Comm) + Sync) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let url = format!("threads://rust-{name}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    std::thread::scope(|threads| {
        for rank in 0..size {
            let (url, body) = (&url, &body);
            threads.spawn(move || {
                let options = CommOptions { rank, size, timeout_ms: 20_000, ..CommOptions::default() };
                body(Comm::join(url, &options).unwrap());
            });
        }
    });
}

/// Expects a call to be refused with this status, in one line; returns the error.
#[track_caller]
pub fn refused<T>(result: ds::Result<T>, status: Status, part: &str) -> Error {
    let error = result.err().expect("the call must be refused");
    assert_eq!(error.status, status, "{error}");
    assert!(error.message.contains(part), "'{part}' in: {error}");
    assert!(!error.message.contains('\n'), "{error}");
    error
}

/// Random numbers that a seed determines.
pub struct Dice(Cell<u64>);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(Cell::new(seed.wrapping_mul(1_000_003)))
    }

    fn next(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        let x = (self.0.get() ^ (self.0.get() >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    pub fn below(&self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    pub fn one_in(&self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn one_of<T: Copy>(&self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}
