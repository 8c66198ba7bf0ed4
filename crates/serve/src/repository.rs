//! Models by name and version, loaded and replaced while requests are answered.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use polygrad_core::{Error, ErrorKind, Result, panic_message};

use crate::service::{Pool, Service, Settings};
use crate::statistics::{Snapshot, Statistics};
use crate::{Failure, InferRequest, InferResponse, Model, Reason, Signature, Value};

/// The source of a model.
pub trait Source: Send + Sync + 'static {
    /// Reads the model.
    ///
    /// # Errors
    /// If it is missing, damaged, or cannot be run.
    fn load(&self) -> Result<Arc<dyn Model>>;

    /// When the files that it is read from last changed; `None` if that is not known.
    fn changed(&self) -> Option<SystemTime> {
        None
    }
}

impl<F: Fn() -> Result<Arc<dyn Model>> + Send + Sync + 'static> Source for F {
    fn load(&self) -> Result<Arc<dyn Model>> {
        self()
    }
}

/// Whether a version answers requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionState {
    /// It does answer requests.
    Ready,
    /// It was not loaded yet, or was unloaded.
    Unloaded,
    /// It could not be loaded; with the reason.
    Failed(String),
}

/// Models by name and version. Clones are handles to the same repository.
#[derive(Clone)]
pub struct Repository(Arc<Inner>);

/// Adds newly discovered models to a repository.
type Find = Box<dyn Fn(&Repository) + Send + Sync>;

struct Inner {
    pool: Pool,
    find: Option<Find>,
    models: ArcSwap<BTreeMap<String, Arc<Versions>>>,
    /// Locked while models are added.
    adding: Mutex<()>,
}

type Versions = BTreeMap<u64, Arc<Version>>;

struct Version {
    source: Box<dyn Source>,
    settings: Settings,
    statistics: Arc<Statistics>,
    service: ArcSwapOption<Service>,
    /// When the source of the loaded model last changed. Locked while the model is loaded or unloaded.
    changed: Mutex<Option<SystemTime>>,
    /// Why there is no service, if there is none.
    absence: Mutex<VersionState>,
    /// Whether it was unloaded by request, and stays unloaded until a request loads it again.
    is_unwanted: AtomicBool,
}

/// A version of a model that answers requests. Clones are handles to the same version.
#[derive(Clone)]
pub struct ModelInfo {
    version: u64,
    versions: Arc<Versions>,
    service: Arc<Service>,
}

impl ModelInfo {
    /// The version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All versions of this model that answer requests.
    pub fn versions(&self) -> Vec<u64> {
        ready(&self.versions).map(|(version, _)| version).collect()
    }

    /// Its inputs and outputs.
    pub fn signature(&self) -> &Signature {
        self.service.signature()
    }

    /// The engine that runs it.
    pub fn platform(&self) -> &str {
        self.service.platform()
    }

    /// Further facts about it, by name.
    pub fn metadata(&self) -> &[(String, String)] {
        self.service.metadata()
    }

    /// The most rows that are computed at once; 1 if requests are kept apart.
    pub fn max_batch_size(&self) -> usize {
        self.service.max_batch_size()
    }

    /// Why requests are computed one by one although their extents would allow joining them: [`Model::apart`].
    pub fn apart(&self) -> Option<&str> {
        self.service.apart()
    }

    /// How it is served.
    pub fn settings(&self) -> &Settings {
        self.service.settings()
    }

    /// Fails if one more request would be rejected, so that its body need not be read.
    ///
    /// # Errors
    /// If the queue is full.
    pub fn admit(&self) -> Result<(), Failure> {
        self.service.admit()
    }

    /// The model's service, for requests other than inference.
    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Answers a request.
    ///
    /// # Errors
    /// A request that does not fit the model; a full queue; a deadline that passed; a failure of the model.
    pub async fn infer(&self, request: InferRequest) -> Result<InferResponse, Failure> {
        let outputs = self.service.infer(request).await?;
        Ok(InferResponse {
            version: self.version,
            outputs,
        })
    }
}

impl Repository {
    /// An empty repository, whose models run on the threads of `pool`.
    pub fn new(pool: Pool) -> Self {
        Self::with_find(pool, None)
    }

    /// A repository that discovers models: `find` adds them, whenever [`Repository::reload_changed`] is
    /// called, or [`Repository::load`] with an unknown name. Discovered models whose source knows when it last
    /// changed are then loaded.
    pub fn finding(pool: Pool, find: impl Fn(&Self) + Send + Sync + 'static) -> Self {
        Self::with_find(pool, Some(Box::new(find)))
    }

    fn with_find(pool: Pool, find: Option<Find>) -> Self {
        Self(Arc::new(Inner {
            pool,
            find,
            models: ArcSwap::default(),
            adding: Mutex::default(),
        }))
    }

    /// Adds a version of a model, which [`Repository::load`] loads.
    ///
    /// # Errors
    /// A name that cannot be part of an address, or that the server uses itself; version 0; or a version that exists
    /// already.
    pub fn add(&self, name: &str, version: u64, source: impl Source, settings: Settings) -> Result<()> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || !name.chars().all(is_plain) || name.starts_with('.') {
            return Err(Error::invalid(format!("{name:?} is no name for a model"))
                .with_hint("take letters, digits, dots, underscores and hyphens, such as resnet-18"));
        }
        if name == "stats" {
            return Err(Error::invalid(
                "no model can be called \"stats\": /v2/models/stats is an address of the server",
            )
            .with_hint("call it otherwise, such as NAME=PATH on the command line"));
        }
        if version == 0 {
            return Err(Error::invalid("versions are counted from 1"));
        }
        let _adding = locked(&self.0.adding);
        let mut models = BTreeMap::clone(&self.0.models.load());
        let mut versions = models
            .get(name)
            .map(|versions| Versions::clone(versions))
            .unwrap_or_default();
        let added = Version {
            source: Box::new(source),
            settings,
            statistics: Arc::default(),
            service: ArcSwapOption::empty(),
            changed: Mutex::default(),
            absence: Mutex::new(VersionState::Unloaded),
            is_unwanted: AtomicBool::new(false),
        };
        if versions.insert(version, Arc::new(added)).is_some() {
            return Err(Error::invalid(format!(
                "there is a version {version} of {name} already"
            )));
        }
        models.insert(name.to_owned(), Arc::new(versions));
        self.0.models.store(Arc::new(models));
        Ok(())
    }

    /// Loads all versions of a model, or reloads them. Requests are answered by the previous version until the new one
    /// is complete; if it cannot be loaded, the previous one stays. Blocks until the model is loaded, so it must not be
    /// called on a thread of an asynchronous runtime.
    ///
    /// # Errors
    /// No such model; the first version that could not be loaded.
    pub fn load(&self, name: &str) -> Result<(), Failure> {
        if self.versions(name).is_err() {
            self.find();
        }
        let mut result = Ok(());
        for (number, version) in self.versions(name)?.iter() {
            if let Err(error) = version.load(&self.0.pool) {
                let message = format!("version {number} of {name} could not be loaded: {error}");
                tracing::warn!("{message}");
                result = result.and(Err(Failure {
                    kind: Some(error.kind()),
                    ..Failure::invalid(message)
                }));
            }
        }
        result
    }

    /// Reloads models that have changed since they were loaded, and loads those that were added. To be called at
    /// intervals.
    pub fn reload_changed(&self) {
        self.find();
        for (name, versions) in self.0.models.load().iter() {
            for (number, version) in versions.iter().filter(|(_, version)| version.has_changed()) {
                match version.load(&self.0.pool) {
                    Ok(()) => {
                        tracing::info!("version {number} of {name} was loaded");
                        if let Some(why) = version.service.load().as_ref().and_then(|service| service.apart()) {
                            tracing::info!("requests to {name} are computed one by one: {why}");
                        }
                    }
                    Err(error) => tracing::warn!("version {number} of {name} was not loaded: {error}"),
                }
            }
        }
    }

    /// Unloads a model. Waiting requests are still answered.
    ///
    /// # Errors
    /// No such model.
    pub fn unload(&self, name: &str) -> Result<(), Failure> {
        for version in self.versions(name)?.values() {
            version.unload();
        }
        Ok(())
    }

    /// A version that answers requests; by default the highest.
    ///
    /// # Errors
    /// No such model or version, or it is not ready.
    pub fn get(&self, name: &str, version: Option<u64>) -> Result<ModelInfo, Failure> {
        let versions = self.versions(name)?;
        let found = match version {
            None => ready(&versions).next_back(),
            Some(wanted) => {
                let version = versions.get(&wanted).ok_or_else(|| {
                    Failure::new(
                        Reason::NotFound,
                        format!("there is no version {wanted} of model {name:?}"),
                    )
                })?;
                version.service.load_full().map(|service| (wanted, service))
            }
        };
        let Some((version, service)) = found else {
            return Err(Failure::new(
                Reason::Unavailable,
                format!("model {name:?} is not ready"),
            ));
        };
        Ok(ModelInfo {
            version,
            versions,
            service,
        })
    }

    /// All models and versions with their states.
    pub fn index(&self) -> Vec<(String, u64, VersionState)> {
        let models = self.0.models.load();
        let all = models.iter().flat_map(|(name, versions)| {
            let versions = versions.iter();
            versions.map(|(number, version)| (name.clone(), *number, version.shown()))
        });
        all.collect()
    }

    /// The statistics of all models, of one model, or of one of its versions.
    ///
    /// # Errors
    /// No such model or version.
    pub fn statistics(
        &self,
        name: Option<&str>,
        version: Option<u64>,
    ) -> Result<Vec<(String, u64, Snapshot)>, Failure> {
        if let Some(name) = name {
            let versions = self.versions(name)?;
            if let Some(wanted) = version.filter(|wanted| !versions.contains_key(wanted)) {
                return Err(Failure::new(
                    Reason::NotFound,
                    format!("there is no version {wanted} of model {name:?}"),
                ));
            }
        }
        let models = self.0.models.load();
        let wanted = models
            .iter()
            .filter(|(found, _)| name.is_none_or(|name| name == *found));
        let all = wanted.flat_map(|(name, versions)| {
            let wanted = versions
                .iter()
                .filter(|(number, _)| version.is_none_or(|version| version == **number));
            wanted.map(|(number, found)| {
                let waiting = found.service.load().as_ref().map_or(0, |service| service.waiting());
                (name.clone(), *number, found.statistics.snapshot(waiting))
            })
        });
        Ok(all.collect())
    }

    /// Whether there are models, and all of them answer requests, except those that were unloaded by request.
    pub fn is_ready(&self) -> bool {
        let models = self.0.models.load();
        let mut versions = models.values().flat_map(|versions| versions.values());
        !models.is_empty() && versions.all(|version| version.service.load().is_some() || version.is_unwanted())
    }

    fn find(&self) {
        if let Some(find) = &self.0.find {
            find(self);
        }
    }

    fn versions(&self, name: &str) -> Result<Arc<Versions>, Failure> {
        let found = self.0.models.load().get(name).cloned();
        found.ok_or_else(|| Failure::new(Reason::NotFound, format!("there is no model {name:?}")))
    }
}

impl Version {
    fn shown(&self) -> VersionState {
        match self.service.load().is_some() {
            true => VersionState::Ready,
            false => locked(&self.absence).clone(),
        }
    }

    fn is_unwanted(&self) -> bool {
        self.is_unwanted.load(Ordering::Acquire)
    }

    fn has_changed(&self) -> bool {
        let Ok(changed) = self.changed.try_lock() else {
            return false;
        };
        // Files that were still changing when they were read are read again once they are stable.
        let now = self.source.changed();
        !self.is_unwanted() && now.is_some() && now != *changed
    }

    fn load(&self, pool: &Pool) -> Result<()> {
        let mut changed = locked(&self.changed);
        // Read first, so that changes while the model is loaded count as changes.
        *changed = self.source.changed();
        let read = catch_unwind(AssertUnwindSafe(|| self.read(pool))).unwrap_or_else(|panic| {
            let words = panic_message(&*panic).unwrap_or("it said nothing");
            Err(Error::new(
                ErrorKind::DeviceError,
                format!("its loading panicked: {words}"),
            ))
        });
        self.is_unwanted.store(false, Ordering::Release);
        match read {
            Ok(service) => {
                self.service.store(Some(service));
                Ok(())
            }
            Err(error) => {
                *locked(&self.absence) = VersionState::Failed(error.to_string());
                Err(error)
            }
        }
    }

    fn unload(&self) {
        let _not_loading = locked(&self.changed);
        self.is_unwanted.store(true, Ordering::Release);
        *locked(&self.absence) = VersionState::Unloaded;
        self.service.store(None);
    }

    /// Reads the model and runs it once, so that the first request finds it warm.
    fn read(&self, pool: &Pool) -> Result<Arc<Service>> {
        let model = self.source.load()?;
        let first = match example(model.signature()) {
            None => None,
            Some(inputs) => {
                let began = Instant::now();
                model.run(&inputs)?;
                Some(began.elapsed())
            }
        };
        Ok(Service::new(
            model,
            self.settings.clone(),
            pool.clone(),
            Arc::clone(&self.statistics),
            first,
        ))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ready(versions: &Versions) -> impl DoubleEndedIterator<Item = (u64, Arc<Service>)> {
    let all = versions.iter();
    all.filter_map(|(number, version)| Some((*number, version.service.load_full()?)))
}

/// One row of zeros, if all other extents are known. Inputs with a default value get it.
fn example(signature: &Signature) -> Option<Vec<Value>> {
    let zeros = signature.inputs.iter().map(|spec| {
        if let Some(value) = spec.default_value() {
            return Some(value.clone());
        }
        let shape = spec.shape(1).ok()?;
        Value::zeros(spec.element, shape).ok()
    });
    zeros.collect()
}
