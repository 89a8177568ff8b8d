// A host that computes its own backward pass.
mod common;
use common::*;
use ds::{Bf16, Engine, EngineOptions, Status, View};

#[test]
fn a_host_trains_with_gradients_of_its_own_evaluates_and_saves() {
    let folder = Scratch::new("delegate");
    ranks("delegate", 3, |comm| {
        let options = EngineOptions::default().init(|part| {
            assert_eq!(part.name, "p");
            part.values.iter_mut().enumerate().for_each(|(i, v)| *v = (part.first + i + 1) as f32);
            Ok(())
        });
        let mut engine = Engine::with_comm(&comm, CONFIG, None, options).unwrap();
        let p = engine.add_param("p", &[5]).unwrap();
        refused(engine.gather(&[p]), Status::State, "ds_engine_start");
        engine.start().unwrap();
        let mut lease = engine.gather(&[p]).unwrap();
        assert_eq!(lease.values::<f32>(p).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(lease.values::<f32>(p).unwrap().as_ptr(), lease.values::<f32>(p).unwrap().as_ptr());
        refused(lease.values::<Bf16>(p), Status::InvalidArgument, "are f32, got a slice of bf16");
        // The mean over ranks 0, 1, 2 is 1.
        lease.write_grad(p, |grad: &mut [f32]| grad.fill(comm.rank() as f32)).unwrap();
        let again = [0.0f32; 5];
        refused(lease.grad_ready(p, &View::of(&again, &[5]).unwrap()), Status::State, "p");
        lease.release().unwrap();
        engine.backward().unwrap();
        engine.step().unwrap();
        assert_eq!(engine.read(p, "master").unwrap(), [0.5, 1.5, 2.5, 3.5, 4.5]);
        engine.evaluate(true).unwrap();
        refused(engine.backward(), Status::State, "evaluat");
        let sum: f32 = engine.gather(&[p]).unwrap().values(p).unwrap().iter().sum::<f32>();
        assert_eq!(sum, 12.5, "evaluation, whose lease ended when it was dropped");
        engine.evaluate(false).unwrap();
        engine.attach("rank", &View::of(&[comm.rank() as i32], &[1]).unwrap()).unwrap();
        refused(engine.attach("", &View::of(&[1.0f32], &[1]).unwrap()), Status::InvalidArgument, "name must not be empty");
        engine.save(&folder, Some(r#"{"client_state": {"epoch": 2}}"#)).unwrap();
        refused(engine.attachment("rank", 0), Status::State, "no checkpoint");
        engine.write(p, "master", &[0.0; 5]).unwrap();
        assert_eq!(engine.load(&folder, None).unwrap(), r#"{"epoch": 2}"#);
        assert_eq!(engine.attachment("rank", 2).unwrap().data::<i32>().unwrap(), [2]);
        refused(engine.attachment("rank", 3), Status::NotFound, "got 3");
        assert_eq!(engine.read(p, "master").unwrap(), [0.5, 1.5, 2.5, 3.5, 4.5]);
    });
}

fn host(lr: &str) -> (Engine, i32, i32) {
    let mut engine = Engine::new(&CONFIG.replace("0.5", lr), None, EngineOptions::default()).unwrap();
    let (p, q) = (engine.add_param("p", &[2]).unwrap(), engine.add_param("q", &[2]).unwrap());
    engine.start().unwrap();
    (engine, p, q)
}

#[test]
fn whole_parameters_need_no_lease_and_gradients_come_as_a_list() {
    let (mut engine, p, q) = host("1");
    let address = engine.values::<f32>(p).unwrap().as_ptr();
    let (ones, twos) = ([1.0f32; 2], [2.0f32; 2]);
    for step in 1..3 {
        let grads = [(p, View::of(&ones, &[2]).unwrap()), (q, View::of(&twos, &[2]).unwrap())];
        engine.grads_ready(&grads).unwrap();
        engine.backward().unwrap();
        engine.step().unwrap();
        assert_eq!(engine.values::<f32>(p).unwrap(), [-step as f32; 2]);
        assert_eq!(engine.values::<f32>(q).unwrap(), [-2.0 * step as f32; 2]);
    }
    assert_eq!(engine.values::<f32>(p).unwrap().as_ptr(), address);
    refused(engine.grads_ready(&[(9, View::of(&ones, &[2]).unwrap())]), Status::InvalidArgument, "9");
}

#[test]
fn a_dropped_step_leaves_no_gradient() {
    let (mut engine, p, q) = host("1");
    let (ones, many) = ([1.0f32; 2], [100.0f32; 2]);
    engine.grad_ready(q, &View::of(&many, &[2]).unwrap()).unwrap();
    engine.backward().unwrap();
    engine.drop_step().unwrap();
    engine.grad_ready(p, &View::of(&ones, &[2]).unwrap()).unwrap();
    engine.backward().unwrap();
    engine.step().unwrap();
    assert_eq!((engine.read(p, "master").unwrap(), engine.read(q, "master").unwrap()), (vec![-1.0; 2], vec![0.0; 2]));
}

#[test]
fn leases_lie_within_leases() {
    let (mut engine, p, q) = host("1");
    engine.write(p, "master", &[1.0, 2.0]).unwrap();
    let mut outer = engine.gather(&[p]).unwrap();
    assert_eq!(outer.values::<f32>(q).unwrap(), [0.0, 0.0], "one rank has all of q, without a lease");
    let inner = outer.gather(&[p, q]).unwrap();
    assert_eq!(inner.values::<f32>(p).unwrap(), [1.0, 2.0]);
    inner.release().unwrap();
    assert_eq!(outer.values::<f32>(p).unwrap(), [1.0, 2.0], "p is leased until its last lease ends");
    outer.write_grad(p, |grad: &mut [f32]| grad.fill(1.0)).unwrap();
    outer.backward().unwrap();
    refused(outer.step(), Status::State, "is leased: it has 1 leases");
    drop(outer);
    engine.step().unwrap();
    assert_eq!(engine.read(p, "master").unwrap(), [0.0, 1.0]);
}

#[test]
fn bad_gradients_are_refused_and_the_engine_goes_on() {
    let (mut engine, p, q) = host("1");
    let (two, ids, three) = ([1.0f32; 2], [1i32; 2], [1.0f32; 3]);
    refused(engine.grad_ready(p, &View::of(&ids, &[2]).unwrap()), Status::InvalidArgument, "i32");
    refused(engine.grad_ready(p, &View::of(&three, &[3]).unwrap()), Status::InvalidArgument, "3");
    refused(engine.grad_ready(9, &View::of(&two, &[2]).unwrap()), Status::InvalidArgument, "9");
    // A missing gradient counts as zero.
    engine.grad_ready(p, &View::of(&two, &[2]).unwrap()).unwrap();
    engine.backward().unwrap();
    engine.step().unwrap();
    assert_eq!((engine.read(p, "master").unwrap(), engine.read(q, "master").unwrap()), (vec![-1.0; 2], vec![0.0; 2]));
    // This gradient comes after the last micro-step and before the update.
    engine.grad_ready(p, &View::of(&two, &[2]).unwrap()).unwrap();
    engine.backward().unwrap();
    refused(engine.grad_ready(q, &View::of(&two, &[2]).unwrap()), Status::State, "comes after 1 of 1 micro-steps");
    engine.step().unwrap();
    // NaN skips the update.
    engine.grad_ready(q, &View::of(&[f32::NAN, 1.0], &[2]).unwrap()).unwrap();
    engine.backward().unwrap();
    engine.step().unwrap();
    assert!(engine.last_step().unwrap().skipped);
    assert_eq!(engine.skip_reason().unwrap(), "step 3 is skipped: gradient norm nan; first tensor with NaN or infinity: the gradient of 'q'");
    assert_eq!(engine.read(p, "master").unwrap(), [-2.0; 2]);
    // If the closure panics, there is no gradient, and the micro-step continues without it.
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        engine.write_grad(p, |_: &mut [f32]| panic!("of the host"))
    }));
    assert!(panic.is_err());
    engine.grad_ready(p, &View::of(&two, &[2]).unwrap()).unwrap();
    engine.backward().unwrap();
    engine.step().unwrap();
    assert_eq!((engine.read(p, "master").unwrap(), engine.last_step().unwrap().skipped), (vec![-3.0; 2], false));
}

#[test]
fn a_start_whose_values_fail_poisons_the_engine() {
    let options = EngineOptions::default().init(|_| Err("no values".into()));
    let mut engine = Engine::new(CONFIG, None, options).unwrap();
    engine.add_param("p", &[2]).unwrap();
    refused(engine.start(), Status::User, ": no values");
    let grad = [1.0f32; 2];
    refused(engine.grad_ready(0, &View::of(&grad, &[2]).unwrap()), Status::Poisoned, "unusable since: options.init");
    refused(engine.write_grad(0, |_: &mut [f32]| ()), Status::Poisoned, "unusable");
    refused(engine.gather(&[0]), Status::Poisoned, "unusable");
    refused(engine.backward(), Status::Poisoned, "unusable");
    refused(engine.start(), Status::Poisoned, "unusable since: options.init");
}

#[test]
fn ranks_that_diverge_are_told() {
    ranks("diverge", 3, |comm| {
        let mut engine = Engine::with_comm(&comm, CONFIG, None, EngineOptions::default()).unwrap();
        let (p, q) = (engine.add_param("p", &[2]).unwrap(), engine.add_param("q", &[2]).unwrap());
        engine.start().unwrap();
        let one = if comm.rank() == 1 { q } else { p };
        let grad = [1.0f32; 2];
        let step = |engine: &mut Engine<&ds::Comm>| {
            engine.grad_ready(one, &View::of(&grad, &[2])?)?;
            engine.backward()?;
            engine.step()
        };
        let error = refused(step(&mut engine), Status::Comm, "calls of step 0 in another order than rank");
        refused(engine.step(), Status::Poisoned, &error.message);
        refused(comm.barrier(), Status::Comm, "in another order than rank");
    });
}

#[test]
fn compute_types_of_16_bits_are_read_and_given() {
    let config = CONFIG.replace("{\"train", "{\"bf16\": {\"enabled\": true}, \"train");
    let mut engine = Engine::new(&config, None, EngineOptions::default()).unwrap();
    let p = engine.add_param("p", &[2]).unwrap();
    engine.start().unwrap();
    engine.write(p, "master", &[1.5, -3.0]).unwrap();
    let mut lease = engine.gather(&[p]).unwrap();
    assert_eq!(lease.values::<Bf16>(p).unwrap(), [Bf16::from_f32(1.5), Bf16::from_f32(-3.0)]);
    lease.write_grad(p, |grad: &mut [Bf16]| grad.fill(Bf16::from_f32(2.0))).unwrap();
    drop(lease);
    engine.backward().unwrap();
    engine.step().unwrap();
    assert_eq!(engine.read(p, "master").unwrap(), [0.5, -4.0]);
}
