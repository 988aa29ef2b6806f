//! The same over every store that has a server: a session from its beginning to another instance, and
//! who gets what. Everything else is tested on stores of this process, which are faster.

use parti_serve::Service;

use crate::client::Events;
use crate::instances::assigned;
use crate::scene::{Held, Manner, Scene, settings};
use crate::shares::share_by_the_table;

/// A scene whose store is this one, by a connection of its own.
async fn scene(url: &str) -> Scene {
    let store = parti::store::open(url).await.expect("a store");
    Scene::with(|settings| settings.store = store).await
}

/// A session registers, gets all, commits, and goes on at a second instance.
async fn goes_on_at_another_instance(url: &str) {
    let scene = scene(url).await;
    let store = parti::store::open(url).await.expect("a store");
    let other = settings(store, &scene.folder).await;
    let other = Service::start(other).await.expect("a second instance");
    scene.make_group(4).await;
    scene.produce(4, 10).await;
    let mut mover = scene.consumer(Manner::Polite).await;
    let had = mover.holds(|held| held.len() == 4).await;
    for (partition, (epoch, next)) in &had {
        assert_eq!(*next, 0);
        assert_eq!(mover.commit(partition, *epoch, 6).await, "ok");
    }
    mover.crash();
    let path = format!("/v1/groups/g/sessions/{}/events", mover.session);
    let auth = format!("Bearer {}", mover.token);
    let headers = [("authorization", auth.as_str())];
    let mut events = Events::open(other.address(), &path, &headers).await;
    let has = assigned(&mut events, 4).await;
    let next =
        |(partition, (epoch, _)): (&String, &(u64, u64))| (partition.clone(), (epoch + 1, 7));
    assert_eq!(has, had.iter().map(next).collect::<Held>());
    mover.address = other.address();
    for (partition, (epoch, _)) in &has {
        assert_eq!(mover.commit(partition, epoch - 1, 8).await, "fenced");
        assert_eq!(mover.commit(partition, *epoch, 7).await, "ok");
        assert_eq!(scene.partition(partition).await["next_offset"], 8);
    }
    assert_eq!(mover.leave().await.ok(200)["result"], "ok");
}

/// A further store with a server: one line of this.
macro_rules! over {
    ($store:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $store() {
            // A server for each of the two: both make the same group.
            let start = || tokio::task::block_in_place(parti_servers::$store::Server::start);
            goes_on_at_another_instance(&start().url()).await;
            share_by_the_table(&scene(&start().url()).await).await;
        }
    };
}

over!(nats);
over!(etcd);
over!(postgres);
