//! From flags to what they name: stores, sources, groups, settings.

use std::sync::Arc;

use parti::inspect::{self, Group};
use parti::operate::Checkpoints;
use parti::source::JetStream;
use parti::source::log::Log;
use parti::source::place::{Located, Place};
use parti::store::{self, GroupStore, Store};
use parti::{Config, Fatal};

use crate::exit::Failure;
use crate::flags::{GroupFlags, LocatedFlags, LookFlags, SourceFlags};
use crate::show::{Shape, plain};

/// The source that a URL names.
pub async fn source(url: &str) -> Result<Place, Failure> {
    Ok(Place::of(url).await?)
}

/// The source that a URL names, to look at: a folder that is not there is told apart from one
/// without topics.
pub async fn existing_source(url: &str) -> Result<Place, Failure> {
    let source = source(url).await?;
    match &source {
        Place::Log(log) if !log.is_there().await? => Err(Failure::usage(format!(
            "--source {url}: there is no such folder; give the one that `parti topic create` or \
             `parti produce` made"
        ))),
        _ => Ok(source),
    }
}

/// The log that a place is; what a stream is asked for has no topic.
pub fn log(place: Place, what: &str) -> Result<Log, Failure> {
    match place {
        Place::Log(log) => Ok(log),
        Place::Stream(_) => Err(Failure::usage(format!(
            "--source is a stream, and {what} is for logs; give it as log:FOLDER"
        ))),
    }
}

/// A stream's URL with the template of its subjects, if one is given.
pub fn with_subject(url: String, template: Option<&str>) -> String {
    let Some(template) = template else {
        return url;
    };
    let mark = if url.contains('?') { '&' } else { '?' };
    let template = template.replace('%', "%25").replace('&', "%26");
    format!("{url}{mark}subject={template}")
}

/// The source that the flags name, if they name one.
pub async fn opened(flags: &SourceFlags) -> Result<Option<Located>, Failure> {
    let Some(url) = &flags.source else {
        return Ok(None);
    };
    Ok(Some(match existing_source(url).await? {
        Place::Log(log) => Located::Topic(log.topic(&flags.topic).await?),
        Place::Stream(url) => {
            let url = with_subject(url, flags.subject.as_deref());
            Located::Stream(Box::new(JetStream::connect(&url).await?))
        }
    }))
}

/// The store that a URL names, for work that begins: what is not there is made.
pub async fn store(url: &str) -> Result<Arc<dyn Store>, Failure> {
    check_store(url)?;
    Ok(store::open(url).await?)
}

/// The store that a URL names, to look at or to operate: nothing is made, so that a mistyped name
/// is told apart from a store without groups.
pub async fn existing(url: &str) -> Result<Arc<dyn Store>, Failure> {
    let found = found(url).await?;
    found.ok_or_else(|| Failure::usage(nothing_there(url)))
}

/// The same; `None` if it is not there.
pub async fn found(url: &str) -> Result<Option<Arc<dyn Store>>, Failure> {
    check_store(url)?;
    Ok(store::open_existing(url).await?)
}

/// What to say then.
pub fn nothing_there(url: &str) -> String {
    let mend = "give the one that the workers have (the first `parti consume` makes it)";
    match url.split_once(':').map_or("", |(scheme, _)| scheme) {
        scheme if scheme.eq_ignore_ascii_case("sqlite") => {
            format!("--store {url}: there is no such file; {mend}")
        }
        // Such a URL may have a password.
        scheme if scheme.to_ascii_lowercase().starts_with("postgres") => {
            format!("--store: the database has no schema of Parti of this name; {mend}")
        }
        _ => format!("--store: the server has no bucket of this name; {mend}"),
    }
}

fn check_store(url: &str) -> Result<(), Failure> {
    store::check_url(url).map_err(|error| match error {
        store::Error::Rejected { why } => Failure::usage(format!("--store: {why}")),
        other => other.into(),
    })
}

/// The records of the group that the flags name, whether there is one or not.
pub async fn records(flags: &GroupFlags) -> Result<GroupStore, Failure> {
    Ok(GroupStore::new(
        existing(&flags.store).await?,
        &flags.group,
    )?)
}

/// The same, for records that may be the first of their store; a dry run makes no file for them.
pub async fn first_records(flags: &GroupFlags, dry_run: bool) -> Result<GroupStore, Failure> {
    let found = found(&flags.store).await?;
    let is_there = found.is_some();
    let nothing = || Arc::new(store::Memory::new()) as Arc<dyn Store>;
    let records = GroupStore::new(found.unwrap_or_else(nothing), &flags.group)?;
    if let Some(problem) = records.unfit_to_begin("--group").await? {
        return Err(Failure::usage(problem));
    }
    if is_there || dry_run {
        return Ok(records);
    }
    Ok(GroupStore::new(
        store::open(&flags.store).await?,
        &flags.group,
    )?)
}

/// The group that the flags name.
pub async fn group(store: &GroupStore) -> Result<Group, Failure> {
    match inspect::group(store).await? {
        Some(group) => Ok(group),
        None => Err(no_group(store).await?),
    }
}

/// The checkpoints of the group that the flags name, also if they still wait for it.
pub async fn checkpoints(store: &GroupStore) -> Result<Group, Failure> {
    if let Some(group) = inspect::group(store).await? {
        return Ok(group);
    }
    let Some(waiting) = inspect::waiting(store).await? else {
        return Err(no_group(store).await?);
    };
    tell!(
        "group {} is not there yet: its first workers begin at these checkpoints",
        plain(store.group())
    );
    Ok(waiting)
}

/// The source that the flags name, if they name one, for the checkpoints of this group.
pub async fn opened_for(
    checkpoints: &Checkpoints,
    group: &GroupStore,
    flags: &SourceFlags,
) -> Result<Option<Located>, Failure> {
    if checkpoints.has_no_log() && flags.source.is_some() {
        return Err(Failure::refused(format!(
            "{}; nothing was changed",
            without_log(group.group(), flags)
        )));
    }
    opened(flags).await
}

/// What to say where a source is given for a group that has none: its offsets say nothing about these
/// checkpoints.
pub fn without_log(group: &str, flags: &SourceFlags) -> String {
    format!(
        "{}: the group {} was made without a log, and what it commits are no offsets of any; leave \
         --source away",
        flags.named(),
        plain(group)
    )
}

/// The group that the flags name, with what the source says of its partitions.
pub async fn located(flags: &GroupFlags, source: &SourceFlags) -> Result<Group, Failure> {
    let store = records(flags).await?;
    let mut group = group(&store).await?;
    if group.has_no_log() && source.source.is_some() {
        tell!("{}", without_log(&group.name, source));
        return Ok(group);
    }
    if let Some(source) = opened(source).await? {
        if group.is_of_other(source.identity().await?) {
            // Its offsets say nothing about these checkpoints.
            tell!("{}", Fatal::StreamReplaced);
            return Ok(group);
        }
        let bounds = source.bounds(&group.partition_ids()).await?;
        group.locate(&bounds);
    }
    Ok(group)
}

/// The group that flags name, and how to show it.
pub async fn looked_at(look: &LookFlags) -> Result<(Group, Shape), Failure> {
    let group = group(&records(&look.group).await?).await?;
    Ok((group, look.output.output))
}

/// The same, with what the source says of its partitions.
pub async fn located_at(look: &LocatedFlags) -> Result<(Group, Shape), Failure> {
    let group = located(&look.group, &look.source).await?;
    Ok((group, look.output.output))
}

/// There is no such group; there are others.
pub async fn no_group(store: &GroupStore) -> Result<Failure, Failure> {
    let known = GroupStore::names(store.store().as_ref()).await?;
    let known = if known.is_empty() {
        "it has none yet".to_owned()
    } else {
        format!("it has {}", plain(&known.join(", ")))
    };
    Ok(Failure::usage(format!(
        "--group {}: {} has no such group; {known}",
        plain(store.group()),
        store.store().name()
    )))
}

/// The settings in a file, and the defaults for what it does not give.
pub fn config(file: Option<&str>, defaults: Config) -> Result<Config, Failure> {
    let Some(file) = file else {
        return Ok(defaults);
    };
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("--config {file}: {error}")))?;
    // JSON is YAML too.
    defaults
        .with_yaml(&text)
        .map_err(|problems| Failure::usage(format!("{file}:\n{problems}")))
}
