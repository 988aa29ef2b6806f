//! What is told on streams is as OpenAPI describes it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::client::Events;
use crate::scene::{Manner, Scene};

/// Whether a value is as a schema has it; nothing that is not described is in it.
fn fits(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(place) = schema["$ref"].as_str() {
        let place = place.strip_prefix('#').unwrap_or(place);
        let found = document.pointer(place).ok_or(format!("no {place}"))?;
        return fits(document, found, value);
    }
    for many in ["oneOf", "anyOf"] {
        if let Some(choices) = schema[many].as_array() {
            let tried = choices.iter().map(|one| fits(document, one, value));
            let wrong: Vec<String> = tried.filter_map(Result::err).collect();
            return match wrong.len() < choices.len() {
                true => Ok(()),
                false => Err(format!("none of {many}: {wrong:?}")),
            };
        }
    }
    if let Some(allowed) = schema["enum"].as_array() {
        return match allowed.contains(value) {
            true => Ok(()),
            false => Err(format!("{value} is none of {allowed:?}")),
        };
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.clone(),
        // What has no type has another schema beside it.
        Value::Null => vec![json!(kind)],
        one => vec![one.clone()],
    };
    if !kinds.contains(&json!(kind)) {
        return Err(format!("{value} is no {kinds:?}"));
    }
    let within = |place: &str, why: String| format!("{place}: {why}");
    if let (Value::Array(values), items @ Value::Object(_)) = (value, &schema["items"]) {
        for one in values {
            fits(document, items, one).map_err(|why| within("items", why))?;
        }
    }
    let Value::Object(fields) = value else {
        return Ok(());
    };
    let empty = Vec::new();
    for part in schema["allOf"].as_array().unwrap_or(&empty) {
        let part = match part["$ref"].as_str() {
            Some(place) => document.pointer(&place[1..]).ok_or("no such schema")?,
            None => part,
        };
        for name in part["required"].as_array().unwrap_or(&empty) {
            let name = name.as_str().unwrap_or_default();
            let value = fields.get(name).ok_or(format!("{name} is missing"))?;
            let schema = &part["properties"][name];
            fits(document, schema, value).map_err(|why| within(name, why))?;
        }
    }
    for name in schema["required"].as_array().unwrap_or(&empty) {
        if !fields.contains_key(name.as_str().unwrap_or_default()) {
            return Err(format!("{name} is missing"));
        }
    }
    if let Value::Object(described) = &schema["properties"] {
        for (name, value) in fields {
            let schema = described.get(name).ok_or(format!("{name} is unknown"))?;
            fits(document, schema, value).map_err(|why| within(name, why))?;
        }
    }
    Ok(())
}

/// The schema of a stream's events.
fn events_of<'a>(document: &'a Value, path: &str) -> &'a Value {
    let content = &document["paths"][path]["get"]["responses"]["200"]["content"];
    let stream = &content["text/event-stream"];
    assert_eq!(stream["schema"], json!(null), "a stream is no JSON");
    &stream["x-itemSchema"]
}

#[track_caller]
fn told(document: &Value, schema: &Value, event: &str, data: &Value) {
    let told = json!({"event": event, "data": data});
    if let Err(why) = fits(document, schema, &told) {
        panic!("{event} is not as it is described: {why}\n{data}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_tell_what_is_described() {
    let document = serde_json::from_str(&parti_serve::openapi()).expect("JSON");
    let scene = Scene::new().await;
    scene.make_group(2).await;
    scene.produce(2, 2).await;
    let mut live = Events::open(scene.address(), "/v1/groups/g/live", &[]).await;
    let schema = events_of(&document, "/v1/groups/{group}/live");
    let (event, data) = live.next().await.expect("the group");
    assert_eq!(event, "group");
    told(&document, schema, &event, &data);

    let first = scene.consumer(Manner::Stubborn).await;
    let held = first.holds(|held| held.len() == 2).await;
    assert_eq!(first.commit("0", held["0"].0, 0).await, "ok");
    let second = scene.consumer(Manner::Polite).await;
    first.hears("lost").await;
    second.holds(|held| held.len() == 1).await;
    first.leave().await.ok(200);
    first.hears("end").await;
    second.holds(|held| held.len() == 2).await;
    let events = events_of(&document, "/v1/groups/{group}/sessions/{session}/events");
    let mut names = BTreeSet::new();
    for (event, data) in first.told.lock().expect("no panic").iter() {
        told(&document, events, event, data);
        names.insert(event.clone());
    }
    let all = ["assigned", "end", "lost", "revoke", "session"];
    assert_eq!(names, BTreeSet::from(all.map(str::to_owned)));

    let group = scene.get("/v1/groups/g").await.ok(200);
    let content = &document["paths"]["/v1/groups/{group}"]["get"]["responses"]["200"]["content"];
    let shape = &content["application/json"]["schema"];
    fits(&document, shape, &group).expect("as it is described");
    let mut other = group.clone();
    other["workers"][0]["beat"] = json!("often");
    fits(&document, shape, &other).expect_err("another shape");

    scene.service.stop().await;
    let mut names = BTreeSet::new();
    while let Some((event, data)) = live.next().await {
        told(&document, schema, &event, &data);
        names.insert(event);
    }
    assert_eq!(names, BTreeSet::from(["change", "end"].map(str::to_owned)));
}
