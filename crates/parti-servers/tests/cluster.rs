//! The cluster keeps answering when it loses a node, and takes it back.

mod clients;

use clients::Nats;
use parti_servers::nats::Cluster;

fn started_with_a_stream() -> Cluster {
    let mut cluster = Cluster::start(3);
    let address = cluster.node(0).address();
    let create = "$JS.API.STREAM.CREATE.letters";
    Nats::insist(&address, create, &Nats::stream(3));
    Nats::insist(&address, "letter.a", "x");
    cluster
}

/// The leader of the stream, as soon as there is one that the others agree on.
fn leader(cluster: &mut Cluster) -> usize {
    loop {
        if let Some(leader) = cluster.leader_of("letters") {
            return leader;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn it_loses_the_leader_and_answers_and_takes_it_back() {
    let mut cluster = started_with_a_stream();
    assert_eq!(cluster.urls().len(), 3);
    let killed = leader(&mut cluster);
    cluster.node(killed).kill();
    // The others tell the dead one as leader until they have chosen anew.
    while leader(&mut cluster) == killed {}
    cluster.wait_until_ready();
    let other = cluster.node((killed + 1) % 3).address();
    let stored = Nats::sequence(&Nats::insist(&other, "letter.b", "y"));
    cluster.node(killed).restart();
    cluster.wait_until_ready();
    let address = cluster.node(killed).address();
    // More than one may have arrived: a lost reply looks like a lost request.
    let info = Nats::insist(&address, "$JS.API.STREAM.INFO.letters", "");
    assert!(Nats::messages(&info) >= stored, "{info}");
}

#[test]
fn an_isolated_leader_is_replaced_and_follows_when_healed() {
    let mut cluster = started_with_a_stream();
    for silently in [false, true] {
        let isolated = leader(&mut cluster);
        if silently {
            cluster.isolate_silently(isolated);
        } else {
            cluster.isolate(isolated);
        }
        let other = (isolated + 1) % 3;
        // Who is cut off keeps its opinion or loses it; the two others come to agree on another.
        loop {
            let seen = cluster.leader_seen_by(other, "letters");
            if seen.is_some_and(|leader| leader != isolated) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Nats::insist(&cluster.node(other).address(), "letter.b", "y");
        cluster.heal(isolated);
        cluster.wait_until_ready();
        leader(&mut cluster);
    }
}
