//! The dashboard beside the demo, on a free port of this machine alone.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use parti::store::GroupStore;
use parti::{Config, inspect};
use parti_serve::{Access, Limits, Service, Settings};

use super::crew::Place;
use crate::exit::Failure;
use crate::places;

/// The service that shows the demo's group.
pub struct Dashboard {
    service: Service,
    records: GroupStore,
}

impl Dashboard {
    /// Serves it, and says where.
    pub async fn open(place: &Place) -> Result<Self, Failure> {
        let source = parti_serve::open_source(&place.source).await;
        let store = places::store(&place.store).await?;
        let records = GroupStore::new(store.clone(), &place.group)?;
        let settings = Settings {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            store,
            source: Some(source.map_err(Failure::failed)?),
            config: places::config(place.config.to_str(), Config::default())?,
            access: Access::default(),
            hosts: Vec::new(),
            tls: None,
            limits: Limits::default(),
        };
        let service = Service::start(settings).await.map_err(Failure::failed)?;
        tell!("dashboard {}/#/groups/{}", service.url(), place.group);
        Ok(Self { service, records })
    }

    /// Partitions that nobody is to serve, because somebody who looked wanted it so: paused ones,
    /// or all when every worker is drained.
    pub async fn unserved(&self) -> Result<BTreeSet<String>, Failure> {
        let Some(group) = inspect::group(&self.records).await? else {
            return Ok(BTreeSet::new());
        };
        let idle = group.partitions.iter();
        let idle = idle.filter(|partition| partition.paused || partition.unserved.is_some());
        Ok(idle.map(|partition| partition.id.to_string()).collect())
    }

    /// Tells whoever looks that it is over.
    pub async fn close(self) {
        self.service.stop().await;
    }
}
