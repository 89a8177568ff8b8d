// Groups of ranks: direct and started collectives, lists, unequal blocks, splits, aborts.
mod common;
use common::*;
use ds::{Bf16, CallbackResult, Collective, Comm, CommOptions, Format, ReduceOp, Status, Transport};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn the_everyday_calls() {
    ranks("everyday", 3, everyday);
}

fn everyday(comm: Comm) {
    let rank = comm.rank();
    let mut data = [rank as f32, 1.0];
    comm.all_reduce(&mut data).unwrap();
    assert_eq!(data, [3.0, 3.0]);
    assert_eq!(comm.reduce_scatter(&[1i64, 2, 3]).unwrap(), [3 * (rank as i64 + 1)]);
    assert_eq!(comm.reduce_scatter(&[Bf16::from_f32(0.5); 3]).unwrap(), [1.5f32]);
    assert_eq!(comm.all_gather(&[rank as i32]).unwrap(), [0, 1, 2]);
    let to: Vec<u8> = (0..3).map(|r| (rank * 3 + r) as u8).collect();
    assert_eq!(comm.all_to_all(&to).unwrap(), [rank as u8, rank as u8 + 3, rank as u8 + 6]);
    let mut word = [if rank == 1 { 7.5f64 } else { 0.0 }];
    comm.broadcast(&mut word, 1).unwrap();
    assert_eq!(word, [7.5]);
    let mut got = [0u8; 4];
    match rank {
        0 => comm.send(b"data", 2).unwrap(),
        2 => comm.receive(&mut got, 0).unwrap(),
        _ => {}
    }
    assert!(rank != 2 || &got == b"data");
    let part = comm.split(if rank == 0 { None } else { Some(0) }, 0).unwrap();
    assert_eq!(part.map(|p| p.size()), if rank == 0 { None } else { Some(2) });
    comm.barrier().unwrap();
    refused(comm.all_to_all(&[0u8; 4]), Status::InvalidArgument, "a multiple of 3 elements, got 4");
    refused(comm.all_reduce(&mut [Bf16(0)]), Status::InvalidArgument, "got bf16");
    assert!(comm.flight_record(Format::Json).unwrap().contains("barrier"));
}

// Tests every operation over a list of two buffers, directly and started; `make` returns the collective, `expected` its
// result.
fn all_operations(comm: &Comm, start: bool) {
    let (me, size) = (comm.rank(), comm.size());
    let of = |rank: usize| vec![vec![rank as i64 + 1, 10], vec![rank as i64; 3]];
    let wide = |rank: usize| vec![(0..size).map(|b| (10 * rank + b) as i64).collect::<Vec<_>>()];
    let run = |collective: Collective<i64>| {
        if start {
            comm.start(collective).unwrap().wait().unwrap()
        } else {
            comm.run(collective).unwrap()
        }
    };
    let sum: i64 = (0..size as i64).sum();
    let total = vec![vec![sum + size as i64, 10 * size as i64], vec![sum; 3]];
    assert_eq!(run(Collective::all_reduce(of(me), ReduceOp::Sum)), total);
    assert_eq!(run(Collective::all_reduce(of(me), ReduceOp::Max)), of(size - 1).as_slice());
    assert_eq!(run(Collective::all_reduce(of(me), ReduceOp::Min)), of(0).as_slice());
    let gathered: Vec<Vec<i64>> = (0..2).map(|i| (0..size).flat_map(|r| of(r)[i].clone()).collect()).collect();
    assert_eq!(run(Collective::all_gather(of(me))), gathered);
    let part = (0..size).map(|r| (10 * r + me) as i64).sum::<i64>();
    assert_eq!(run(Collective::reduce_scatter(wide(me), ReduceOp::Sum)), [[part]]);
    let received: Vec<i64> = (0..size).map(|r| (10 * r + me) as i64).collect();
    assert_eq!(run(Collective::all_to_all(wide(me))), [received.as_slice()]);
    for root in 0..size {
        assert_eq!(run(Collective::broadcast(of(me), root)), of(root));
        let (empty, at_root) = (vec![Vec::new(); 2], me == root);
        assert_eq!(run(Collective::reduce(of(me), ReduceOp::Sum, root)), if at_root { total.clone() } else { empty.clone() });
        assert_eq!(run(Collective::gather(of(me), root)), if at_root { gathered.clone() } else { empty });
        let given = if at_root { wide(root) } else { Vec::new() };
        assert_eq!(run(Collective::scatter(given, vec![1], root)), [[(10 * root + me) as i64]]);
    }
    // Rank r has r elements in all_gather and reduce_scatter, and sends b + 1 to rank b.
    let blocks: Vec<usize> = (0..size).collect();
    let all: Vec<i64> = (0..size).flat_map(|r| vec![r as i64; r]).collect();
    assert_eq!(run(Collective::all_gather_blocks(vec![me as i64; me], blocks.clone())), [all.as_slice()]);
    let own: Vec<i64> = vec![(me * size) as i64; me];
    assert_eq!(run(Collective::reduce_scatter_blocks(all.clone(), blocks, ReduceOp::Sum)), [own.as_slice()]);
    let sends: Vec<usize> = (1..=size).collect();
    let count = size * (size + 1) / 2;
    let came: Vec<i64> = (0..size).flat_map(|r| vec![r as i64; me + 1]).collect();
    let takes = vec![me + 1; size];
    assert_eq!(run(Collective::all_to_all_blocks(vec![me as i64; count], sends, takes)), [came.as_slice()]);
}

#[test]
fn every_operation_over_lists_and_unequal_blocks() {
    for size in [1, 3] {
        ranks("operations", size, |comm| {
            all_operations(&comm, false);
            all_operations(&comm, true);
            let halves = vec![vec![Bf16::from_f32(0.5); 2], vec![Bf16::from_f32(comm.rank() as f32)]];
            let sums: Vec<Vec<f32>> = comm.run(Collective::all_reduce(halves, ReduceOp::Sum)).unwrap();
            assert_eq!(sums[0], [0.5 * size as f32; 2]);
            let mean = comm.run(Collective::all_reduce(vec![vec![comm.rank() as f64]], ReduceOp::Mean)).unwrap();
            assert_eq!(mean, [[f64::from(size - 1) / 2.0]]);
            assert!(comm.run(Collective::barrier()).unwrap().is_empty());
            assert!(comm.start(Collective::barrier()).unwrap().wait().unwrap().is_empty());
            assert!(comm.run(Collective::<f32>::all_reduce(Vec::new(), ReduceOp::Sum)).unwrap().is_empty());
        });
    }
}

#[test]
fn results_take_the_place_of_the_data_where_the_types_are_one() {
    let comm = Comm::join("self", &CommOptions::default()).unwrap();
    let data = vec![1.0f32; 1000];
    let at = data.as_ptr();
    let out = comm.start(Collective::all_reduce(vec![data], ReduceOp::Sum)).unwrap().wait().unwrap();
    assert_eq!(out[0].as_ptr(), at);
    let out = comm.run(Collective::broadcast(out, 0)).unwrap();
    assert_eq!(out[0].as_ptr(), at);
}

#[test]
fn started_collectives_overlap_and_end_in_order() {
    ranks("started", 3, |comm| {
        let works: Vec<_> = (0..20)
            .map(|i| comm.start(Collective::all_reduce(vec![vec![i as f32; 5000]], ReduceOp::Sum)).unwrap())
            .collect();
        // A direct collective first waits for the started ones.
        comm.barrier().unwrap();
        assert!(works.iter().all(|w| w.is_done()));
        for (i, work) in works.into_iter().enumerate().rev() {
            assert_eq!(work.wait().unwrap()[0], vec![3.0 * i as f32; 5000]);
        }
    });
}

#[test]
fn a_work_that_is_dropped_keeps_its_buffers_until_it_has_ended() {
    ranks("dropped", 3, |comm| {
        for round in 0..50 {
            let data = vec![round as f32; 20_000];
            let work = comm.start(Collective::all_reduce(vec![data], ReduceOp::Sum)).unwrap();
            drop(work);
            // If memory were freed too early, this would reuse it, and the collective would overwrite it.
            let other = vec![-1.0f32; 20_000];
            if round % 5 == 0 {
                comm.barrier().unwrap();
            }
            assert!(other.iter().all(|&x| x == -1.0));
        }
        let left = comm.start(Collective::broadcast(vec![vec![1u8; 1 << 20]], 0)).unwrap();
        std::mem::forget(comm.start(Collective::broadcast(vec![vec![1u8; 1000]], 0)).unwrap());
        drop(comm);
        // The group was left, so the collective has ended, with success or not.
        assert!(left.is_done());
        let _ = left.wait();
    });
}

#[test]
fn a_work_is_waited_for_by_another_thread() {
    ranks("threads", 2, |comm| {
        let work = comm.start(Collective::all_gather(vec![vec![comm.rank() as u8]])).unwrap();
        let out = std::thread::spawn(move || work.wait()).join().unwrap();
        assert_eq!(out.unwrap(), [[0u8, 1]]);
    });
}

#[test]
fn wrong_collectives_are_refused_before_they_start() {
    let comm = Comm::join("self", &CommOptions::default()).unwrap();
    let one = || vec![vec![1.0f32; 2]];
    refused(comm.run(Collective::broadcast(one(), 7)), Status::InvalidArgument, "root must be 0 to 0, got 7");
    refused(comm.start(Collective::gather(one(), usize::MAX)), Status::InvalidArgument, "root must be 0 to 0");
    refused(comm.run(Collective::scatter(one(), vec![3], 0)), Status::InvalidArgument, "must have 3 elements, got 2");
    refused(comm.run(Collective::scatter(one(), vec![], 0)), Status::InvalidArgument, "must have 0 elements, got 1");
    let blocks = |blocks| Collective::all_gather_blocks(vec![1u8; 2], blocks);
    refused(comm.run(blocks(vec![1, 1])), Status::InvalidArgument, "blocks must be one for each of 1 ranks, got 2");
    refused(comm.run(blocks(vec![3])), Status::InvalidArgument, "must have 3 elements, got 2");
    let huge = Collective::all_to_all_blocks(vec![1u8; 2], vec![2], vec![usize::MAX, 1]);
    refused(comm.run(huge), Status::InvalidArgument, "out_blocks must be one for each of 1 ranks, got 2");
    refused(comm.run(Collective::all_reduce(vec![vec![1i32]], ReduceOp::Mean)), Status::InvalidArgument, "mean");
    refused(Comm::join("nothing://x", &CommOptions::default()), Status::Unsupported, "nothing");
    let options = CommOptions { rank: 4, size: 2, ..CommOptions::default() };
    refused(Comm::join("threads://rank4", &options), Status::InvalidArgument, "rank must be 0 to 1, got 4");
    comm.barrier().unwrap();
}

#[test]
fn ranks_that_call_otherwise_are_told_and_the_group_ends() {
    ranks("other", 3, |comm| {
        let error = if comm.rank() == 1 { comm.barrier() } else { comm.all_reduce(&mut [1.0f32]) };
        let error = refused(error, Status::Comm, "ds_comm_barrier");
        assert!(error.message.contains("ds_comm_all_reduce"), "{error}");
        refused(comm.barrier(), Status::Comm, "");
    });
}

#[test]
fn an_abort_from_another_thread_ends_what_waits() {
    ranks("abort", 2, |comm| {
        if comm.rank() == 0 {
            let aborter = comm.aborter();
            let work = comm.start(Collective::barrier()).unwrap();
            std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(50));
                aborter.abort("enough").unwrap();
            });
            refused(work.wait(), Status::Comm, "enough");
        } else {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        refused(comm.barrier(), Status::Comm, "enough");
    });
    let gone = Comm::join("self", &CommOptions::default()).unwrap().aborter();
    gone.abort("nobody is there").unwrap();
}

#[test]
fn collectives_are_timed() {
    ranks("log", 2, |comm| {
        refused(comm.log(Format::Text), Status::State, "log of group 'all' was not started");
        comm.log_start().unwrap();
        comm.all_gather(&[1u8; 100]).unwrap();
        assert!(comm.log(Format::Text).unwrap().contains("all_gather"));
        assert!(comm.log(Format::Json).unwrap().contains("all_gather"));
    });
}

// A transport over channels between threads; each rank holds its ends of the channels.
struct Channels {
    rank: usize,
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Mutex<Receiver<Vec<u8>>>>,
    pairs: bool,
    fails_at: usize,
    calls: AtomicUsize,
    ended: Arc<AtomicUsize>,
}

impl Drop for Channels {
    fn drop(&mut self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl Transport for Channels {
    fn all_to_all(&self, outgoing: &[&[u8]], incoming: &mut [&mut [u8]]) -> CallbackResult {
        match self.calls.fetch_add(1, Ordering::Relaxed) + 1 {
            call if call == self.fails_at => return Err("the wire was cut".into()),
            call if call > self.fails_at => panic!("of the transport"),
            _ => {}
        }
        for (to, part) in outgoing.iter().enumerate() {
            if !part.is_empty() {
                self.send(part, to)?;
            }
        }
        for (from, part) in incoming.iter_mut().enumerate() {
            if !part.is_empty() {
                self.receive(part, from)?;
            }
        }
        assert!(outgoing[self.rank].is_empty() && incoming[self.rank].is_empty());
        Ok(())
    }

    fn has_pairs(&self) -> bool {
        self.pairs
    }

    fn send(&self, data: &[u8], to: usize) -> CallbackResult {
        Ok(self.to[to].send(data.to_vec())?)
    }

    fn receive(&self, data: &mut [u8], from: usize) -> CallbackResult {
        data.copy_from_slice(&self.from[from].lock().unwrap().recv_timeout(Duration::from_secs(60))?);
        Ok(())
    }
}

fn channels(size: usize, pairs: bool, fails_at: usize, ended: &Arc<AtomicUsize>) -> Vec<Channels> {
    let mut to: Vec<Vec<_>> = (0..size).map(|_| Vec::new()).collect();
    let mut from: Vec<Vec<_>> = (0..size).map(|_| Vec::new()).collect();
    for sender in &mut to {
        for receivers in &mut from {
            let (end, other) = channel();
            sender.push(end);
            receivers.push(Mutex::new(other));
        }
    }
    let ranks = to.into_iter().zip(from).enumerate();
    ranks
        .map(|(rank, (to, from))| Channels {
            rank,
            to,
            from,
            pairs,
            fails_at: if rank == 0 { fails_at } else { usize::MAX },
            calls: AtomicUsize::new(0),
            ended: ended.clone(),
        })
        .collect()
}

fn over_channels(size: usize, pairs: bool, body: impl Fn(Comm) + Sync) {
    let ended = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for one in channels(size, pairs, usize::MAX, &ended) {
            let body = &body;
            scope.spawn(move || {
                let rank = one.rank;
                body(Comm::over(one, rank, size).unwrap())
            });
        }
    });
    assert_eq!(ended.load(Ordering::Relaxed), size);
}

#[test]
fn a_transport_of_the_program_has_every_operation() {
    over_channels(3, true, everyday);
    over_channels(3, false, |comm| {
        all_operations(&comm, false);
        all_operations(&comm, true);
        refused(comm.send(b"x", (comm.rank() + 1) % 3), Status::Unsupported, "send");
    });
}

#[test]
fn an_error_of_a_transport_ends_the_group() {
    for fails_at in [1, 4] {
        let ended = Arc::new(AtomicUsize::new(0));
        let mut both = channels(2, false, fails_at, &ended);
        let other = both.pop().unwrap();
        let one = both.pop().unwrap();
        let peer = std::thread::spawn(move || {
            if let Ok(comm) = Comm::over(other, 1, 2) {
                while comm.barrier().is_ok() {}
            }
        });
        let failed = Comm::over(one, 0, 2).and_then(|comm| {
            loop {
                comm.barrier()?;
            }
            #[allow(unreachable_code)]
            Ok(())
        });
        refused(failed, Status::Comm, "the wire was cut");
        peer.join().unwrap();
        assert_eq!(ended.load(Ordering::Relaxed), 2);
    }
    let ended = Arc::new(AtomicUsize::new(0));
    let two = channels(2, false, usize::MAX, &ended).pop().unwrap();
    refused(Comm::over(two, 2, 2).map(|_| ()), Status::InvalidArgument, "rank must be 0 to 1, got 2");
    assert_eq!(ended.load(Ordering::Relaxed), 2);
}
