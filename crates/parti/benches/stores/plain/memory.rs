//! A map behind a lock, with a revision for each value.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use parti::store::Bytes;

use super::Plain;

#[derive(Default)]
pub struct Map {
    map: Mutex<BTreeMap<String, (u64, Bytes)>>,
}

#[async_trait]
impl Plain for Map {
    async fn write(&mut self, writes: &[(String, Bytes)]) {
        let mut map = self.map.lock().expect("no panic holds it");
        for (key, value) in writes {
            let revision = map.get(key).map_or(0, |(revision, _)| *revision);
            map.insert(key.clone(), (revision + 1, value.clone()));
        }
    }
}
