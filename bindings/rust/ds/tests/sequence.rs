// Random sequences of calls, right and wrong ones, from safe Rust, by one rank and by three that make the same calls.
// Whatever a program does, a call succeeds, or returns an error that says what the program should do and that never
// reports a defect of libds. A refused call never costs the engine, every refusal has one line of text, and all ranks
// get the same answer.
//
// A seed determines a sequence: DS_SEQUENCE=7 repeats the sequence of seed 7 and prints its calls. DS_LONG makes more
// sequences.
mod common;
use common::*;
use ds::{Collective, Comm, CommOptions, Engine, EngineOptions, Format, Graph, Group, Lease, ReduceOp};
use ds::{Plan, Status, Tensor, Value, View, Work};
use std::path::Path;
use std::sync::Mutex;

struct Held<G: Group> {
    engine: Engine<G>,
    may_be_lost: bool,
}

struct World<'a, G: Group> {
    group: G,
    comm: &'a Comm,
    dice: Dice,
    folder: &'a Path,
    seed: u64,
    shows: bool,
    engines: Vec<Held<G>>,
    graphs: Vec<Graph>,
    tensors: Vec<Tensor>,
    works: Vec<Work<i64>>,
    answers: Vec<(String, Option<Status>)>,
}

const TEXTS: [&str; 12] =
    ["", "lr", "weight_decay", "param_groups[1].lr", "w", "{", "{}", "[1]", "{\"lr\": 0.1}", "\n", "null", "x"];
const STATES: [&str; 7] = ["master", "momentum_buffer", "exp_avg", "param", "grad", "param", "none"];

impl<'a, G: Group + Clone> World<'a, G> {
    fn took<T>(&mut self, call: &str, result: ds::Result<T>) -> Option<T> {
        self.took_of(call, result, false)
    }

    /// Checks that the result is one that every call may return.
    fn took_of<T>(&mut self, call: &str, result: ds::Result<T>, may_be_lost: bool) -> Option<T> {
        if self.shows {
            println!("{call}: {:?}", result.as_ref().err());
        }
        let error = result.as_ref().err();
        if let Some(e) = error {
            let lost = [Status::Internal, Status::Io, Status::Corrupt, Status::Comm].contains(&e.status);
            assert!(!lost && (may_be_lost || e.status != Status::Poisoned), "seed {}: {call}: {e}", self.seed);
            assert!(!e.message.is_empty(), "seed {}: {call}: no message", self.seed);
            assert!(e.status == Status::OutOfMemory || !e.message.contains('\n'), "seed {}: {call}: {e}", self.seed);
        }
        self.answers.push((call.to_string(), error.map(|e| e.status)));
        result.ok()
    }

    fn text(&mut self) -> &'static str {
        self.dice.one_of(&TEXTS)
    }

    fn param(&mut self) -> i32 {
        if self.dice.one_in(8) {
            self.dice.one_of(&[-1, 3, 99, i32::MAX, i32::MIN])
        } else {
            self.dice.below(3) as i32
        }
    }

    fn keep<T>(pool: &mut Vec<T>, dice: &Dice, made: Option<T>) {
        if let Some(made) = made {
            if pool.len() < 3 {
                pool.push(made);
            } else {
                let place = dice.below(3);
                pool[place] = made;
            }
        }
    }

    fn make_engine(&mut self) {
        let optimizer = self.dice.one_of(&["SGD", "AdamW", "Adam", "Adafactor"]);
        let (stage, bf16) = (self.dice.below(if self.dice.one_in(9) { 5 } else { 4 }), self.dice.one_in(3));
        let config = format!(
            r#"{{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": {}, "zero_optimization": {{"stage": {stage}}},
                "optimizer": {{"type": "{optimizer}", "params": {{"lr": 0.01}}}}, "bf16": {{"enabled": {bf16}}}}}"#,
            1 + self.dice.below(2)
        );
        let graph = if self.dice.one_in(2) { Some(linear_graph()) } else { None };
        let fails = self.dice.one_in(6);
        let mut options = EngineOptions { threads: 1, ..EngineOptions::default() };
        if self.dice.one_in(2) {
            options = options.init(move |part| {
                part.values.fill(0.25);
                if fails { Err("no values".into()) } else { Ok(()) }
            });
        }
        let made = Engine::with_comm(self.group.clone(), &config, graph.as_ref(), options);
        let mut engine = match self.took("Engine::with_comm", made) {
            Some(engine) => engine,
            None => return,
        };
        if graph.is_none() {
            for name in ["p0", "p1", "p2"] {
                let added = engine.add_param(name, &[4]);
                self.took("add_param", added);
            }
            if !self.dice.one_in(8) {
                let started = engine.start();
                self.took_of("start", started, fails);
            }
        }
        Self::keep(&mut self.engines, &self.dice, Some(Held { engine, may_be_lost: fails }));
    }

    /// Makes a call of one engine, if there is one, and judges its result.
    fn with_engine<T>(&mut self, call: &str, body: impl FnOnce(&mut Engine<G>, &Dice) -> ds::Result<T>) -> Option<T> {
        if self.engines.is_empty() {
            return None;
        }
        let place = self.dice.below(self.engines.len());
        let held = &mut self.engines[place];
        let (result, may_be_lost) = (body(&mut held.engine, &self.dice), held.may_be_lost);
        self.took_of(call, result, may_be_lost)
    }

    fn steps(&mut self) {
        let (x, target) = batch();
        let wrong = [1i32; 12];
        let mut micros: Vec<f32> = x.clone();
        micros.extend(&x);
        let twice: Vec<f32> = target.iter().chain(&target).copied().collect();
        let which = self.dice.below(8);
        let call = ["train_batch", "train_batch", "forward", "backward", "step", "eval_batch", "infer", "last_step"][which];
        let nan = [f32::NAN; 12];
        self.with_engine(call, |engine, dice| {
            let good = if dice.one_in(2) {
                inputs(&x, &target)
            } else {
                [View::of(&micros, &[8, 3])?, View::of(&twice, &[8, 2])?]
            };
            let given = match dice.below(8) {
                0 => [View::of(&wrong, &[4, 3])?, View::of(&target, &[4, 2])?],
                1 => inputs(&nan, &target),
                _ => good,
            };
            let given = &given[..if dice.one_in(9) { dice.below(3) } else { 2 }];
            match which {
                0 | 1 => engine.train_batch(given).map(drop),
                2 => engine.forward(given).map(drop),
                3 => engine.backward(),
                4 => engine.step(),
                5 => engine.eval_batch(given).map(drop),
                6 => {
                    let [given, _] = inputs(&x, &target);
                    engine.infer(&[if dice.one_in(9) { None } else { Some(given) }, None]).map(drop)
                }
                _ => {
                    let last = engine.last_step()?;
                    assert_eq!(last.skipped, !engine.skip_reason()?.is_empty());
                    Ok(())
                }
            }
        });
    }

    fn states(&mut self) {
        let (param, text) = (self.param(), self.text());
        let group = self.dice.one_of(&["{}", "{\"lr\": 0.1}", "{\"betas\": [0.5, 0.6]}"]);
        match self.dice.below(8) {
            0 | 1 => {
                // Values that are written are read back with the same bits.
                let state = self.dice.one_of(&STATES);
                self.with_engine("write and read", |engine, dice| {
                    let count: usize = engine.param_info(param)?.1.iter().product();
                    let values: Vec<f32> = (0..count).map(|i| i as f32 * 0.5).collect();
                    engine.write(param, state, &values[..if dice.one_in(9) { 0 } else { count }])?;
                    assert_eq!(engine.read(param, state)?, values);
                    Ok(())
                });
            }
            2 => drop(self.with_engine("local", |engine, _| {
                let own = engine.local_range(param)?;
                engine.write_local(param, "master", &vec![0.5; own.len()])?;
                engine.refresh()?;
                assert_eq!(engine.read_local(param, "master")?, vec![0.5; own.len()]);
                Ok(())
            })),
            3 => drop(self.with_engine("freeze", |engine, dice| engine.freeze(&[param], dice.one_in(2)))),
            4 => drop(self.with_engine("add_group", |engine, _| engine.add_group(&[param], group))),
            5 => drop(self.with_engine("set", |engine, dice| {
                let value = dice.one_of(&[0.0, 1.0, 0.01, -1.0, f64::NAN, f64::INFINITY]);
                engine.set(text, value)?;
                assert!(value.is_nan() || engine.get(text)? == value);
                Ok(())
            })),
            6 => drop(self.with_engine("read", |engine, dice| engine.read(param, dice.one_of(&STATES)))),
            _ => drop(self.with_engine("texts", |engine, _| {
                engine.plan_report(Format::Json)?;
                engine.param(text).map(drop)
            })),
        }
    }

    fn delegate(&mut self) {
        let (p, q) = (self.param(), self.param());
        fn grads<G: Group>(lease: &mut Lease<'_, G>, param: i32, dice: &Dice) -> ds::Result<()> {
            let grad = [if dice.one_in(9) { f32::NAN } else { 0.5 }; 4];
            match dice.below(4) {
                0 => lease.write_grad(param, |place: &mut [f32]| place.copy_from_slice(&grad)),
                1 => lease.write_grad(param, |place: &mut [ds::Bf16]| place.fill(ds::Bf16::from_f32(0.5))),
                2 => lease.grad_ready(param, &View::of(&grad[..3], &[3])?),
                _ => lease.grad_ready(param, &View::of(&grad, &[4])?),
            }
        }
        match self.dice.below(6) {
            0 | 1 => drop(self.with_engine("lease", |engine, dice| {
                let mut lease = engine.gather(if dice.one_in(3) { &[] } else { std::slice::from_ref(&p) })?;
                if let Ok(values) = lease.values::<f32>(p) {
                    assert_eq!(values.len(), 4);
                }
                let first = grads(&mut lease, p, dice);
                let mut inner = lease.gather(&[q, p])?;
                let second = grads(&mut inner, q, dice);
                if dice.one_in(2) {
                    inner.release()?;
                }
                first.and(second)
            })),
            2 => drop(self.with_engine("a whole step", |engine, _| {
                let grad = [0.5f32; 4];
                engine.grad_ready(p, &View::of(&grad, &[4])?)?;
                engine.backward()?;
                engine.step()
            })),
            3 => drop(self.with_engine("evaluate", |engine, dice| engine.evaluate(dice.one_in(2)))),
            4 => drop(self.with_engine("the end of a step", |engine, dice| {
                if dice.one_in(2) { engine.backward() } else { engine.step() }
            })),
            _ => drop(self.with_engine("start", |engine, _| {
                engine.add_param("p3", &[4])?;
                engine.start()
            })),
        }
    }

    fn collectives(&mut self) {
        let (size, me) = (self.comm.size(), self.comm.rank() as i64);
        let n = self.dice.below(6);
        let op = self.dice.one_of(&[ReduceOp::Sum, ReduceOp::Max, ReduceOp::Mean]);
        let root = self.dice.below(size + usize::from(self.dice.one_in(9)));
        let list = || vec![vec![me; n], vec![1; 2 * n]];
        let make = match self.dice.below(9) {
            0 => Collective::all_reduce(list(), op),
            1 => Collective::all_gather(list()),
            2 => Collective::reduce_scatter(vec![vec![me; n]], ReduceOp::Sum),
            3 => Collective::all_to_all(vec![vec![me; n * size]; 2]),
            4 => Collective::broadcast(list(), root),
            5 => Collective::reduce(list(), op, root),
            6 => Collective::gather(list(), root),
            7 => Collective::scatter(vec![vec![me; n * size]], vec![n], root),
            _ => Collective::all_gather_blocks(vec![me; n], vec![n; size]),
        };
        if self.dice.one_in(2) {
            let out = self.comm.run(make);
            self.took("run", out);
        } else {
            let work = self.comm.start(make);
            let work = self.took("start", work);
            Self::keep(&mut self.works, &self.dice, work);
        }
        if self.dice.one_in(3) && !self.works.is_empty() {
            let work = self.works.swap_remove(self.dice.below(self.works.len()));
            if self.dice.one_in(2) {
                let out = work.wait();
                self.took("wait", out);
            }
        }
    }

    fn tensors(&mut self) {
        let dims: Vec<usize> = (0..self.dice.below(4)).map(|_| self.dice.one_of(&[0, 1, 2, 3, 8, usize::MAX])).collect();
        let made = match self.dice.below(3) {
            0 => Tensor::zeros::<f32>(&dims),
            1 => Tensor::from_vec(vec![1i32; 6], &dims),
            _ => Tensor::copy_of(&[1.0f64; 8], &dims),
        };
        let made = self.took("a tensor", made);
        Self::keep(&mut self.tensors, &self.dice, made);
        if self.tensors.len() > 1 {
            let from = self.tensors.swap_remove(0);
            let copied = self.tensors[0].copy_from(&from.view());
            self.took("copy_from", copied);
            let back = from.into_dlpack().and_then(Tensor::from_dlpack);
            let back = self.took("dlpack", back);
            Self::keep(&mut self.tensors, &self.dice, back);
        }
    }

    fn graphs(&mut self) {
        let made = if self.dice.one_in(2) { Ok(linear_graph()) } else { Graph::new(self.text(), self.dice.below(9)) };
        let made = self.took("Graph::new", made);
        Self::keep(&mut self.graphs, &self.dice, made);
        let mut graph = match self.graphs.pop() {
            Some(graph) => graph,
            None => return,
        };
        let dims: Vec<_> = (0..self.dice.below(3)).map(|_| self.dice.one_of(&[None, Some(0), Some(2), Some(3)])).collect();
        let input = graph.input::<f32>(self.text(), &dims);
        self.took("input", input);
        for _ in 0..3 {
            let op = self.dice.one_of(&["relu", "linear", "mse", "add", "nothing"]);
            let values: Vec<Value> = (0..self.dice.below(4)).map(|_| Value(self.dice.below(9) as i32 - 1)).collect();
            let added = graph.op(op, &values, if self.dice.one_in(3) { Some(self.text()) } else { None });
            self.took("op", added);
        }
        let out = graph.output(self.text(), Value(self.dice.below(9) as i32));
        self.took("output", out);
        let again = graph.print().and_then(|text| Ok((Graph::parse(&text)?.print()?, text)));
        if let Some((again, text)) = self.took("print and parse", again) {
            assert_eq!(again, text);
        }
        let plan = Plan::new(CONFIG, Some(&graph), self.dice.below(3) as i32, 2).and_then(|p| p.report(Format::Text));
        self.took("plan", plan);
        self.graphs.push(graph);
    }

    fn files(&mut self) {
        let path = self.folder.join(if self.dice.one_in(2) { "one" } else { "two" });
        let options = self.dice.one_of(&[None, None, Some("{\"keep\": 2}"), Some("{\"client_state\": 3}"), Some("{")]);
        if self.dice.one_in(2) {
            self.with_engine("save", |engine, _| engine.save(&path, options));
        } else {
            self.with_engine("load", |engine, _| engine.load(&path, None));
        }
    }

    fn run(mut self) -> Vec<(String, Option<Status>)> {
        self.make_engine();
        self.make_engine();
        for _ in 0..60 {
            match self.dice.below(16) {
                0 => self.make_engine(),
                1 if !self.engines.is_empty() => drop(self.engines.swap_remove(0)),
                1 | 2 => self.graphs(),
                3 => self.tensors(),
                4..=6 => self.collectives(),
                7..=9 => self.steps(),
                10..=11 => self.states(),
                12..=14 => self.delegate(),
                _ => self.files(),
            }
        }
        self.answers
    }
}

fn sequence<G: Group + Clone>(group: G, comm: &Comm, seed: u64, folder: &Path, shows: bool) -> Vec<(String, Option<Status>)> {
    let (engines, graphs, tensors, works, answers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let dice = Dice::new(seed);
    World { group, comm, dice, folder, seed, shows, engines, graphs, tensors, works, answers }.run()
}

/// Returns the seeds to run, and whether their calls are printed.
fn seeds(few: u64, many: u64) -> (std::ops::RangeInclusive<u64>, bool) {
    match std::env::var("DS_SEQUENCE") {
        Ok(seed) => (seed.parse().unwrap()..=seed.parse().unwrap(), true),
        Err(_) => (1..=if std::env::var_os("DS_LONG").is_some() { many } else { few }, false),
    }
}

#[test]
fn sequences_of_one_rank() {
    let (seeds, shows) = seeds(150, 10_000);
    let folder = Scratch::new("sequence");
    for seed in seeds {
        let comm = Comm::join("self", &CommOptions::default()).unwrap();
        if seed % 2 == 0 {
            sequence((), &comm, seed, &folder, shows);
        } else {
            sequence(&comm, &comm, seed, &folder, shows);
        }
    }
}

#[test]
fn sequences_of_three_ranks_have_the_same_answers() {
    let (seeds, shows) = seeds(40, 1000);
    let folder = Scratch::new("sequences");
    for seed in seeds {
        let answers = Mutex::new(Vec::new());
        ranks("sequence", 3, |comm| {
            let own = sequence(&comm, &comm, seed, &folder, shows && comm.rank() == 0);
            answers.lock().unwrap().push(own);
        });
        let answers = answers.into_inner().unwrap();
        assert!(answers[0] == answers[1] && answers[0] == answers[2], "seed {seed}");
    }
}
