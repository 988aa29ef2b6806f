//! The servers of a scenario: one, or a cluster of three.

use parti_servers::nats::{Cluster, Server};
use parti_servers::proxy::Proxy;
use tokio::task::block_in_place;

use crate::failure::{Failure, While};

/// One server, or three.
pub enum Servers {
    /// One.
    One(Box<Server>),
    /// Three that share their streams.
    Three(Cluster),
}

impl Servers {
    /// Starts them.
    pub fn start(version: &str, cluster: bool) -> Result<Self, Failure> {
        block_in_place(|| {
            let builder = Server::builder().version(version);
            Ok(if cluster {
                Self::Three(Cluster::try_start(&builder, 3).during("starting a cluster")?)
            } else {
                Self::One(Box::new(builder.try_start().during("starting a server")?))
            })
        })
    }

    /// Hosts and ports, separated by commas.
    pub fn addresses(&mut self) -> String {
        match self {
            Self::One(server) => server.address(),
            Self::Three(cluster) => {
                let size = cluster.size();
                let addresses = (0..size).map(|node| cluster.node(node).address());
                addresses.collect::<Vec<_>>().join(",")
            }
        }
    }

    /// On how many of them a stream lies.
    pub fn replicas(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Three(cluster) => cluster.size(),
        }
    }

    /// The only one.
    pub fn one(&mut self) -> Result<&mut Server, Failure> {
        match self {
            Self::One(server) => Ok(server),
            Self::Three(_) => Err(Failure::new("this scenario is for one server")),
        }
    }

    /// All three.
    pub fn cluster(&mut self) -> Result<&mut Cluster, Failure> {
        match self {
            Self::One(_) => Err(Failure::new("this scenario is for a cluster")),
            Self::Three(cluster) => Ok(cluster),
        }
    }

    /// A proxy in front of the only one.
    pub fn proxy(&mut self) -> Result<Proxy, Failure> {
        let address = self.one()?.address();
        Proxy::try_start(address).during("starting a proxy")
    }
}
