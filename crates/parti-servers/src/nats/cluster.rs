//! A cluster of nats-servers whose nodes can lose each other.
//!
//! ```text
//!   node 0 ──▶ proxy 0→1 ──▶ node 1        one proxy for each ordered pair:
//!      └─────▶ proxy 0→2 ──▶ node 2        isolating node 0 cuts 0→1, 0→2, 1→0, 2→0
//! ```
//!
//! Nodes tell each other where the others are, and would connect around the proxies. So each
//! advertises, for routes, an address where nobody listens; the routes of the configuration remain.

use std::time::{Duration, Instant};

use super::{Builder, Nats, Server};
use crate::error::loud;
use crate::folder::Folder;
use crate::install;
use crate::ports::Port;
use crate::process::PATIENCE;
use crate::proxy::Proxy;
use crate::running::try_thrice;
use crate::{Error, http};

/// Several nats-servers with a JetStream that they share.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
    routes: Vec<Route>,
    // Leased as long as the cluster lives, so that nobody listens there.
    _nowhere: Port,
    _listeners: Vec<Port>,
}

#[derive(Debug)]
struct Route {
    from: usize,
    to: usize,
    proxy: Proxy,
}

impl Cluster {
    /// Starts so many nodes and waits until streams can be created. Panics, with what to do, if
    /// that cannot be.
    #[track_caller]
    pub fn start(nodes: usize) -> Self {
        Self::start_with(&Server::builder(), nodes)
    }

    /// Starts so many nodes with these options.
    #[track_caller]
    pub fn start_with(options: &Builder, nodes: usize) -> Self {
        loud(Self::try_start(options, nodes))
    }

    /// Starts so many nodes with these options.
    pub fn try_start(options: &Builder, nodes: usize) -> Result<Self, Error> {
        // Outside the repetition: what is missing stays missing.
        install::nats(&options.version)?;
        try_thrice(|| {
            let mut cluster = Self::prepare(options, nodes)?;
            // One after the other: nodes that dial each other at the same moment drop a connection
            // on either side, after which 2.10 sometimes never finds a leader.
            for node in &mut cluster.nodes {
                node.spawn()?;
                node.wait_until_ready()?;
            }
            cluster.try_wait_until_ready()?;
            Ok(cluster)
        })
    }

    fn prepare(options: &Builder, count: usize) -> Result<Self, Error> {
        let nowhere = Port::lease()?;
        let listeners = (0..count)
            .map(|_| Port::lease())
            .collect::<Result<Vec<_>, _>>()?;
        let mut routes = Vec::new();
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                let proxy = Proxy::try_start(listeners[to].address())?;
                routes.push(Route { from, to, proxy });
            }
        }
        let nodes = listeners
            .iter()
            .enumerate()
            .map(|(index, listener)| {
                let urls: Vec<String> = routes
                    .iter()
                    .filter(|route| route.from == index)
                    .map(|route| format!("\"nats-route://{}\"", route.proxy.address()))
                    .collect();
                let config = format!(
                    "cluster {{\n  name: parti\n  listen: \"{}\"\n  advertise: \"{}\"\n  \
                     routes: [{}]\n}}",
                    listener.address(),
                    nowhere.address(),
                    urls.join(", ")
                );
                options.prepare(Folder::new("nats")?, Some(&config))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            nodes,
            routes,
            _nowhere: nowhere,
            _listeners: listeners,
        })
    }

    /// The URL of each node.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// One URL that names every node.
    pub fn url(&self) -> String {
        let first = self.nodes.first().map(Server::url).unwrap_or_default();
        let others: Vec<String> = self.nodes.iter().skip(1).map(Server::address).collect();
        [vec![first], others].concat().join(",")
    }

    /// How many nodes there are.
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// A node, to kill, pause or restart it. A node that restarts alone answers clients before it
    /// has found its cluster; see [`wait_until_ready`](Self::wait_until_ready).
    ///
    /// Panics when there is no such node.
    #[track_caller]
    pub fn node(&mut self, index: usize) -> &mut Server {
        &mut self.nodes[index]
    }

    /// Cuts a node off from the others: its routes are closed and new ones refused. Clients still
    /// reach it.
    pub fn isolate(&mut self, index: usize) {
        self.of_node(index, Proxy::cut);
    }

    /// Cuts a node off from the others without a word: its routes stay open and carry nothing.
    #[track_caller]
    pub fn isolate_silently(&mut self, index: usize) {
        self.of_node(index, |proxy| proxy.stall());
    }

    /// Gives a node its routes back. Does not wait until it has caught up.
    #[track_caller]
    pub fn heal(&mut self, index: usize) {
        self.of_node(index, |proxy| proxy.heal());
    }

    fn of_node(&mut self, index: usize, change: impl Fn(&mut Proxy)) {
        for route in &mut self.routes {
            if route.from == index || route.to == index {
                change(&mut route.proxy);
            }
        }
    }

    /// The node that leads JetStream as a whole, as the nodes that run see it; None while they
    /// disagree or have none.
    pub fn leader(&mut self) -> Option<usize> {
        self.agreed(|cluster, node| cluster.told_by(node, "/jsz", "\"meta_cluster\""))
    }

    /// The node that leads a stream, as the nodes that run see it; None while they disagree or have
    /// none.
    pub fn leader_of(&mut self, stream: &str) -> Option<usize> {
        self.agreed(|cluster, node| cluster.leader_seen_by(node, stream))
    }

    /// The node that leads a stream, as this node sees it.
    pub fn leader_seen_by(&self, node: usize, stream: &str) -> Option<usize> {
        let mark = format!("\"name\": \"{stream}\"");
        self.told_by(node, "/jsz?accounts=true&streams=true", &mark)
    }

    fn agreed(&mut self, told_by: impl Fn(&Self, usize) -> Option<usize>) -> Option<usize> {
        let running: Vec<usize> = (0..self.nodes.len())
            .filter(|node| self.nodes[*node].is_running())
            .collect();
        let told: Option<Vec<usize>> = running.iter().map(|node| told_by(self, *node)).collect();
        let told = told?;
        told.first()
            .copied()
            .filter(|first| told.iter().all(|leader| leader == first))
    }

    /// The first `leader` that comes after a mark in what a node tells.
    fn told_by(&self, node: usize, path: &str, mark: &str) -> Option<usize> {
        let text = http::get(&self.nodes.get(node)?.monitor(), path)?;
        let (_, rest) = text.split_once(mark)?;
        let (_, rest) = rest.split_once("\"leader\": \"")?;
        let (name, _) = rest.split_once('"')?;
        self.nodes.iter().position(|node| node.kind.name == name)
    }

    /// Waits until every node that runs is healthy and all agree on who leads. Panics if
    /// that takes minutes.
    #[track_caller]
    pub fn wait_until_ready(&mut self) {
        loud(self.try_wait_until_ready());
    }

    /// Waits until all servers that run are there, and one leads; streams and consumers may still be
    /// catching up. Servers of 2.10 can say for good that a consumer has not, after a restart.
    #[track_caller]
    pub fn wait_until_serving(&mut self) {
        loud(self.wait(Nats::serves));
    }

    fn try_wait_until_ready(&mut self) -> Result<(), Error> {
        self.wait(Nats::is_healthy)
    }

    fn wait(&mut self, is_well: fn(&Nats) -> bool) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        while !self.is_ready(is_well) {
            if Instant::now() > deadline {
                let logs: Vec<String> = self
                    .nodes
                    .iter()
                    .map(|node| format!("{}:\n{}", node.url(), node.launch.log_tail()))
                    .collect();
                return Err(Error::new(format!(
                    "the cluster found no leader. The ends of its logs:\n{}",
                    logs.join("\n")
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn is_ready(&mut self, is_well: fn(&Nats) -> bool) -> bool {
        self.nodes
            .iter_mut()
            .all(|node| !node.is_running() || is_well(&node.kind))
            && self.leader().is_some()
    }
}
