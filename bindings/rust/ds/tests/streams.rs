// Tensors on a device whose memory the host cannot access, and the order of work on its streams.
mod common;
use common::*;
use ds::{DeviceTensor, Engine, EngineOptions, Group, Status, Stream, Tensor};

fn engine(device: &str) -> Engine {
    let config = CONFIG.replace("{\"train", &format!("{{\"device\": \"{device}\", \"train"));
    Engine::new(&config, Some(&linear_graph()), EngineOptions { threads: 1, ..Default::default() }).unwrap()
}

fn numbers(dice: &Dice, rows: usize, columns: usize) -> (Vec<f32>, [usize; 2]) {
    ((0..rows * columns).map(|_| dice.below(1000) as f32 / 500.0 - 1.0).collect(), [rows, columns])
}

#[test]
fn the_cpu_has_no_streams() {
    let error = refused(Stream::new(&mut engine("cpu")), Status::Unsupported, "device 'cpu' has no streams");
    assert!(error.tensor.is_none());
}

#[test]
fn copies_are_ordered_and_outlive_what_is_dropped() {
    let mut engine = engine("separate");
    let stream = Stream::new(&mut engine).unwrap();
    let mut on_device = stream.zeros::<f32>(&[100, 100]).unwrap();
    assert_eq!((on_device.dims().unwrap(), on_device.device().unwrap()), (vec![100, 100], "separate"));
    let mut downloads = Vec::new();
    for i in 0..300 {
        // The host's tensor moves into the stream; a temporary on the device is dropped while work is running.
        let from = Tensor::from_vec(vec![i as f32; 10_000], &[100, 100]).unwrap();
        let other = stream.upload(from).unwrap();
        on_device.copy_from(&other).unwrap();
        downloads.push(on_device.download().unwrap());
    }
    drop(engine);
    for (i, download) in downloads.into_iter().enumerate() {
        assert_eq!(download.wait().unwrap().data::<f32>().unwrap(), vec![i as f32; 10_000]);
    }
    drop(on_device.download().unwrap());
    let wrong = Tensor::from_vec(vec![1.0f32; 10], &[10]).unwrap();
    refused(on_device.upload(wrong), Status::InvalidArgument, "to and from must have one type and shape");
    let wrong = Tensor::from_vec(vec![1i32; 10_000], &[100, 100]).unwrap();
    refused(on_device.upload(wrong), Status::InvalidArgument, "to and from must have one type and shape");
}

#[test]
fn streams_and_engines_are_not_mixed() {
    let (mut first, mut second) = (engine("separate"), engine("separate"));
    let (one, two) = (Stream::new(&mut first).unwrap(), Stream::new(&mut first).unwrap());
    let x = one.zeros::<f32>(&[4, 3]).unwrap();
    let target = two.zeros::<f32>(&[4, 2]).unwrap();
    refused(first.train_batch_on(&[&x, &target]), Status::InvalidArgument, "of one stream, got several");
    refused(first.train_batch_on(&[]), Status::InvalidArgument, "got none");
    let target = one.zeros::<f32>(&[4, 2]).unwrap();
    refused(second.train_batch_on(&[&x, &target]), Status::InvalidArgument, "ds_stream_create made for this engine");
    let mut on_cpu = engine("cpu");
    refused(on_cpu.train_batch_on(&[&x, &target]), Status::InvalidArgument, "NULL on device 'cpu'");
    first.train_batch_on(&[&x, &target]).unwrap();
}

/// A step, an evaluation or an inference gives the same bits with tensors on the device as with tensors on the host.
#[test]
fn random_work_on_streams_has_the_bits_of_the_host() {
    for seed in 0..10 {
        let dice = Dice::new(seed);
        let (mut host, mut device) = (engine("cpu"), engine("separate"));
        let streams = [0, 1].map(|_| Stream::new(&mut device).unwrap());
        for _ in 0..30 {
            let stream = dice.one_of(&[&streams[0], &streams[1]]);
            let rows = 1 + dice.below(4);
            let ((x, x_dims), (target, target_dims)) = (numbers(&dice, rows, 3), numbers(&dice, rows, 2));
            let put = |data: &[f32], dims: &[usize]| -> DeviceTensor {
                let from = Tensor::copy_of(data, dims).unwrap();
                if dice.one_in(2) {
                    return stream.upload(from).unwrap();
                }
                let mut to = stream.zeros::<f32>(dims).unwrap();
                to.upload(Tensor::copy_of(&vec![9.0f32; data.len()], dims).unwrap()).unwrap(); // the upload is overwritten
                to.upload(from).unwrap();
                to
            };
            let on_device = [put(&x, &x_dims), put(&target, &target_dims)];
            let on_host = [ds::View::of(&x, &x_dims).unwrap(), ds::View::of(&target, &target_dims).unwrap()];
            let [dx, dt] = [&on_device[0], &on_device[1]];
            match dice.below(5) {
                0 => assert_eq!(host.eval_batch(&on_host).unwrap(), device.eval_batch_on(&[dx, dt]).unwrap()),
                1 => {
                    let [given, _] = on_host;
                    let expected = host.infer(&[Some(given), None]).unwrap();
                    let y = device.infer_on(&[Some(dx), None]).unwrap().download().unwrap().wait().unwrap();
                    assert_eq!(y.data::<f32>().unwrap(), expected.data::<f32>().unwrap(), "seed {seed}");
                }
                2 => {
                    assert_eq!(host.forward(&on_host).unwrap(), device.forward_on(&[dx, dt]).unwrap());
                    finish(&mut host);
                    finish(&mut device);
                }
                // The engine of the device also gets tensors of the host.
                3 => assert_eq!(host.train_batch(&on_host).unwrap(), device.train_batch(&on_host).unwrap()),
                _ => assert_eq!(host.train_batch(&on_host).unwrap(), device.train_batch_on(&[dx, dt]).unwrap(), "seed {seed}"),
            }
        }
        for param in 0..2 {
            assert_eq!(host.read(param, "master").unwrap(), device.read(param, "master").unwrap(), "seed {seed}");
        }
    }
}

fn finish<G: Group>(engine: &mut Engine<G>) {
    engine.backward().unwrap();
    engine.step().unwrap();
}

#[test]
fn a_host_gives_gradients_and_reads_values_on_the_device() {
    let config = CONFIG.replace("{\"train", "{\"device\": \"separate\", \"train");
    let mut engine = Engine::new(&config, None, EngineOptions::default()).unwrap();
    let p = engine.add_param("p", &[3]).unwrap();
    engine.start().unwrap();
    engine.write(p, "master", &[1.0, 2.0, 3.0]).unwrap();
    let stream = Stream::new(&mut engine).unwrap();
    for step in 0..3 {
        let mut lease = engine.gather(&[p]).unwrap();
        let values = lease.values_on(p, &stream).unwrap();
        assert_eq!(lease.values::<f32>(p).unwrap(), values.download().unwrap().wait().unwrap().data::<f32>().unwrap());
        lease.release().unwrap();
        let grad = stream.upload(Tensor::from_vec(vec![2.0f32; 3], &[3]).unwrap()).unwrap();
        engine.grad_ready_on(p, &grad).unwrap();
        drop(grad);
        finish(&mut engine);
        assert_eq!(engine.read(p, "master").unwrap(), [0.0, 1.0, 2.0].map(|v| v - step as f32));
    }
    engine.write_grad(p, |grad: &mut [f32]| grad.fill(2.0)).unwrap();
    finish(&mut engine);
    assert_eq!(engine.read(p, "master").unwrap(), [-3.0, -2.0, -1.0]);
}
