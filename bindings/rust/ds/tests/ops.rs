//! The functions of `ds::ops` make the graph that operations by name make.

use ds::{ops, Graph, Value};

fn begin() -> (Graph, [Value; 4]) {
    let mut graph = Graph::new("g", 16).unwrap();
    let x = graph.input::<f32>("x", &[None, Some(12)]).unwrap();
    let w = graph.param("w", &[12, 12], "normal", 0.5).unwrap();
    let b = graph.param("b", &[12], "zeros", 0.0).unwrap();
    let mask = graph.input::<i32>("mask", &[None]).unwrap();
    (graph, [x, w, b, mask])
}

fn by_name() -> String {
    let (mut graph, [x, w, b, mask]) = begin();
    let y = graph.op("linear", &[x, w, b], None).unwrap();
    let y = graph.op("rms_norm", &[y, b], Some(r#"{"eps": 1e-5, "offset": 1}"#)).unwrap();
    let y = graph.op("gelu", &[y], Some(r#"{"form": "erf"}"#)).unwrap();
    let y = graph.op("attention", &[y, mask], Some(r#"{"heads": 2, "seq": 8, "causal": 0, "scale": 0.1}"#)).unwrap();
    graph.op("load_balance", &[y, y, mask], Some(r#"{"k": 2}"#)).unwrap();
    graph.print().unwrap()
}

fn by_function() -> String {
    let (mut graph, [x, w, b, mask]) = begin();
    let g = &mut graph;
    let y = ops::linear(g, x, w, Some(b), &ops::Linear::default()).unwrap();
    let (y, rstd) = ops::rms_norm(g, y, b, 1e-5, &ops::RmsNorm { offset: true }).unwrap();
    assert_eq!(rstd.0, y.0 + 1);
    let y = ops::gelu(g, y, &ops::Gelu { form: "erf" }).unwrap();
    let options = ops::Attention { causal: false, scale: 0.1, ..Default::default() };
    let (y, _) = ops::attention_packed(g, y, Some(mask), 2, 8, &options).unwrap();
    ops::load_balance(g, &[y, y], Some(mask), 2).unwrap();
    graph.print().unwrap()
}

#[test]
fn same_graph_as_by_name() {
    assert_eq!(by_function(), by_name());
}

#[test]
fn an_error_is_the_libraries() {
    let (mut graph, [x, ..]) = begin();
    let error = ops::gelu(&mut graph, x, &ops::Gelu { form: "\"erf" }).unwrap_err();
    assert!(error.to_string().contains("must be one of tanh erf 10, got text '\"erf'"), "{}", error);
}
