//! The dashboard beside the demo, on a free port of this machine alone.

use std::net::{Ipv4Addr, SocketAddr};

use parti_serve::{Access, Limits, Service, Settings};

use super::crew::Place;
use crate::exit::Failure;
use crate::places;

/// The service that shows the demo's group.
pub struct Dashboard {
    service: Service,
}

impl Dashboard {
    /// Serves it, and says where.
    pub async fn open(place: &Place) -> Result<Self, Failure> {
        let source = parti_serve::open_source(&place.source).await;
        let settings = Settings {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            store: places::store(&place.store).await?,
            source: Some(source.map_err(Failure::failed)?),
            config: places::config(place.config.to_str())?,
            access: Access::default(),
            hosts: Vec::new(),
            tls: None,
            limits: Limits::default(),
        };
        let service = Service::start(settings).await.map_err(Failure::failed)?;
        eprintln!("dashboard {}/#/groups/{}", service.url(), place.group);
        Ok(Self { service })
    }

    /// Tells whoever looks that it is over.
    pub async fn close(self) {
        self.service.stop().await;
    }
}
