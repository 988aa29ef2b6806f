//! Groups of a service that is set up without leaders.

use parti::core::config::Coordination;
use parti_serve::Service;
use serde_json::json;

use crate::client::send;
use crate::scene::{Manner, Scene, settings};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_without_leaders_makes_groups_without_leaders() {
    let leaderless = Coordination::Leaderless;
    let scene = Scene::with(|settings| settings.config.coordination = leaderless).await;
    scene.make_group(4).await;
    let group = scene.get("/v1/groups/g").await.ok(200);
    assert_eq!(group["coordination"], "leaderless");
    scene.produce(4, 3).await;
    let first = scene.consumer(Manner::Polite).await;
    first.holds(|held| held.len() == 4).await;
    let second = scene.consumer(Manner::Polite).await;
    for consumer in [&first, &second] {
        let held = consumer.holds(|held| held.len() == 2).await;
        for (partition, (epoch, _)) in &held {
            assert_eq!(consumer.commit(partition, *epoch, 1).await, "ok");
            assert_eq!(scene.partition(partition).await["next_offset"], 2);
        }
    }
    // By another strategy everybody would compute another target.
    let other = json!({"group": "g", "topic": "t", "partitions": 4, "strategy": "round_robin"});
    assert_eq!(scene.post("/v1/groups", &other).await.status, 409);

    // An instance that is set up otherwise says so, before anybody waits for a session there.
    let led = settings(scene.store.clone(), &scene.folder).await;
    let led = Service::start(led).await.expect("a second instance");
    let again = json!({"group": "g", "topic": "t", "partitions": 4}).to_string();
    let consumer = json!({"consumer": "x"}).to_string();
    for (path, body) in [("/v1/groups", again), ("/v1/groups/g/sessions", consumer)] {
        let refused = send(led.address(), "POST", path, &[], Some(&body)).await;
        assert_eq!(refused.code(), "conflict", "{refused:?}");
        for part in ["coordination", "leaderless", "leader"] {
            assert!(refused.body.contains(part), "{refused:?}");
        }
    }
}
