//! The store in a server of the Redis protocol.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use redis::{RedisError, Value, cmd};
use watchdog_host::clock;
use watchdog_types::{
    BootTime, Bytes, FleetAnswer, FleetAsk, FleetFence, FleetName, FleetShares, FleetView, HostIncarnation, HostRow,
    PoolName,
};

use crate::address::StoreOptions;
use crate::connection::{StoreAccess, StoreLink, info_field};
use crate::reply::{Expected, ScriptReply, printable};
use crate::store::{
    FleetStore, FleetStoreError, HostCounts, Placement, PlacementAnswer, Restated, StoreCall, StoreHealth,
};
use crate::view::{PublishedRow, fleet_view, read_hosts};

/// A grant must be used this fraction of the TTL before its row could expire.
const MARGIN: u32 = 10;
/// Hosts per call: a call for a thousand hosts would delay grants by milliseconds.
const VIEW_PAGE: usize = 100;
/// More hosts are not listed.
const MAX_HOSTS: isize = 4096;
/// Maximum number of pools in a row.
const MAX_ROW_POOLS: usize = 256;
/// Maximum number of shares in a response.
const MAX_SHARES: usize = 4096;
/// Characters of a setting of the server.
const MAX_SETTING: usize = 64;
const MIN_RETRY: Duration = Duration::from_millis(50);
const LONGEST_TICKET: Duration = Duration::from_secs(60);
/// Seconds without a message after which [`FleetStore::watch`] checks that the connection still works.
const PING_AFTER: u32 = 5;
/// Seconds within which the response must arrive.
const PONG_WITHIN: u32 = 2;

/// The fleet's store in a server of the Redis protocol, as one host uses it.
pub struct RedisStore {
    link: StoreLink,
    host: FleetName,
    incarnation: HostIncarnation,
    ttl: Duration,
}

impl RedisStore {
    /// The first call connects.
    ///
    /// # Errors
    /// When the address is invalid.
    pub fn new(options: &StoreOptions, host: FleetName, incarnation: HostIncarnation) -> Result<Self, FleetStoreError> {
        let (info, shown) = options.parse()?;
        let access = StoreAccess::new(info, shown, options.prefix.as_str(), options.ttl, Self::TIMEOUT);
        Ok(Self { link: StoreLink::new(Arc::new(access)), host, incarnation, ttl: options.ttl })
    }

    /// Its address, without a password.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.link.access().shown
    }

    fn nonsense(&self, expected: Expected) -> FleetStoreError {
        self.link.access().nonsense(expected)
    }

    fn identity(&self) -> Vec<String> {
        let HostIncarnation { boot_id, machine_id, generation } = &self.incarnation;
        vec![self.host.to_string(), boot_id.to_string(), machine_id.to_string(), generation.to_string()]
    }

    fn try_ask(&mut self, ask: &FleetAsk, asked: BootTime) -> Result<FleetAnswer, FleetStoreError> {
        let FleetAsk { number, pools, priority, since, ticket } = ask;
        if pools.len() > FleetAsk::MAX_POOLS {
            return Err(self.nonsense("fewer pools in one request"));
        }
        let mut arguments = self.identity();
        let ticket = ticket.as_ref().map(ToString::to_string).unwrap_or_default();
        arguments.extend([number.0.to_string(), priority.to_string(), millis(asked.since(*since)).to_string(), ticket]);
        arguments.extend(pools.iter().flat_map(|(pool, limit)| [pool.to_string(), limit.to_string()]));
        let (status, mut reply) = self.link.call("ask", &arguments)?;
        let answer = match status.as_str() {
            "granted" => {
                let number = reply.number().map_err(|expected| self.nonsense(expected))?;
                let deadline = asked.plus(self.ttl - self.ttl / MARGIN);
                if clock::now() > deadline {
                    return Ok(FleetAnswer::Void);
                }
                let fence = FleetFence { incarnation: self.incarnation.clone(), number };
                return Ok(FleetAnswer::Granted { fence, deadline });
            }
            "void" => Ok(FleetAnswer::Void),
            "paused" => {
                reply.number().map(|left| FleetAnswer::Paused { until: clock::now().plus(self.retry_after(left)) })
            }
            "duplicate" => reply.name().map(|host| FleetAnswer::DuplicateMachine { host }),
            "refused" => self.refused(&mut reply, pools),
            _ => Err("a response to a request"),
        };
        answer.map_err(|expected| self.nonsense(expected))
    }

    fn refused(&self, reply: &mut ScriptReply, asked: &BTreeMap<PoolName, u32>) -> Result<FleetAnswer, Expected> {
        let (pool, limit, held) = (reply.name()?, reply.places()?, reply.places()?);
        if !asked.contains_key(&pool) {
            return Err("a pool of the request");
        }
        let (ahead, retry_after) = (reply.places()?, self.retry_after(reply.number()?));
        // Random, so that hosts that were refused together do not retry together.
        let retry_after = retry_after.mul_f64(fastrand::f64().mul_add(0.4, 0.8));
        let mut by_host = Vec::new();
        while !reply.is_empty() && by_host.len() < 8 {
            let (host, places) = (reply.name(), reply.places()?);
            by_host.extend(host.ok().map(|host| (host, places)));
        }
        Ok(FleetAnswer::Refused { pool, limit, held, by_host, ahead, retry_after })
    }

    /// Requests follow each other no faster, whatever the server says.
    fn retry_after(&self, left: u64) -> Duration {
        self.bounded(left).max(MIN_RETRY)
    }

    /// A time from the server. More than two TTLs would be an error of its clock, and is cut.
    fn bounded(&self, left: u64) -> Duration {
        Duration::from_millis(left).min(self.ttl * 2)
    }

    fn hosts(&mut self) -> Result<Vec<String>, FleetStoreError> {
        let mut names = cmd("ZREVRANGE");
        names.arg(self.link.access().key("seen")).arg(0).arg(MAX_HOSTS - 1);
        let mut reply = ScriptReply::new(self.link.command(&names)?).map_err(|expected| self.nonsense(expected))?;
        let mut hosts = Vec::new();
        while !reply.is_empty() {
            // Another program may have written names that no host has.
            hosts.extend(reply.name::<FleetName>().ok().map(String::from));
        }
        Ok(hosts)
    }

    /// Against the middle of the call.
    fn clock_ahead(&mut self) -> Result<i64, FleetStoreError> {
        let before = SystemTime::now();
        let mut reply = self.link.command(&cmd("TIME")).and_then(|time| self.read(ScriptReply::new(time)))?;
        let half = before.elapsed().unwrap_or_default() / 2;
        let (seconds, micros) = (self.read(reply.number())?, self.read(reply.number())?);
        let server = Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros));
        let here = before.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + half;
        let signed = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Ok(signed(server.saturating_sub(here)) - signed(here.saturating_sub(server)))
    }

    fn read<T>(&self, part: Result<T, Expected>) -> Result<T, FleetStoreError> {
        part.map_err(|expected| self.nonsense(expected))
    }

    fn info(&mut self) -> Result<(String, Duration), FleetStoreError> {
        let started = Instant::now();
        match self.link.command(cmd("INFO").arg("everything"))? {
            Value::BulkString(bytes) => Ok((String::from_utf8_lossy(&bytes).into_owned(), started.elapsed())),
            _ => Err(self.nonsense("INFO")),
        }
    }
}

impl FleetStore for RedisStore {
    fn duplicate(&self) -> Self {
        let (host, incarnation) = (self.host.clone(), self.incarnation.clone());
        Self { link: StoreLink::new(self.link.access().clone()), host, incarnation, ttl: self.ttl }
    }

    fn restate(&mut self, row: &HostRow) -> Result<Restated, FleetStoreError> {
        let HostRow { held, limits, settled, user_limit, waiting, summary } = row;
        let held: BTreeMap<_, _> = held.iter().filter(|(_, places)| **places > 0).take(MAX_ROW_POOLS).collect();
        let memory = summary.memory_available.0.to_string();
        let json = |text: Result<String, serde_json::Error>| text.map_err(|_| self.nonsense("a row that is JSON"));
        let (published, held) = (json(PublishedRow::bounded(summary, limits))?, json(serde_json::to_string(&held))?);
        let mut arguments = self.identity();
        arguments.extend([settled.0.to_string(), waiting.to_string(), memory, published, held]);
        arguments.push(user_limit.unwrap_or(0).to_string());
        arguments
            .extend(limits.iter().take(MAX_ROW_POOLS).flat_map(|(pool, limit)| [pool.to_string(), limit.to_string()]));
        let (status, mut reply) = self.link.call("restate", &arguments)?;
        let restated = match status.as_str() {
            "restated" => reply.places().and_then(|up| {
                let hosts = HostCounts { up, unreachable: reply.places()? };
                let paused = Some(self.bounded(reply.number()?)).filter(|left| !left.is_zero());
                let mut shares = FleetShares { hosts: reply.places()?, pools: BTreeMap::new() };
                while !reply.is_empty() {
                    let (pool, places) = (reply.name(), reply.places()?);
                    shares.pools.extend(pool.ok().map(|pool: PoolName| (pool, places)));
                    if shares.pools.len() > MAX_SHARES {
                        return Err("fewer shares");
                    }
                }
                Ok(Restated::Done { hosts, paused, shares })
            }),
            "superseded" => Ok(Restated::Superseded),
            "duplicate" => reply.name().map(|host| Restated::DuplicateMachine { host }),
            _ => Err("a response to a restatement"),
        };
        restated.map_err(|expected| self.nonsense(expected))
    }

    fn ask(&mut self, ask: &FleetAsk) -> FleetAnswer {
        let asked = clock::now();
        self.try_ask(ask, asked).unwrap_or_else(|error| FleetAnswer::StoreLost { error: error.to_string() })
    }

    fn view(&mut self) -> Result<FleetView, FleetStoreError> {
        let names = self.hosts()?;
        let (mut hosts, mut paused) = (Vec::new(), None);
        let pages = names.chunks(VIEW_PAGE).map(<[String]>::to_vec);
        // An empty fleet may be paused, too.
        for page in pages.chain(names.is_empty().then(Vec::new)) {
            let (_, mut reply) = self.link.call("view", &page)?;
            let left = reply.number().and_then(|left| read_hosts(&mut reply, page.len(), &mut hosts).map(|()| left));
            let left = left.map_err(|expected| self.nonsense(expected))?;
            paused = Some(self.bounded(left)).filter(|left| !left.is_zero());
        }
        Ok(fleet_view(hosts, paused))
    }

    fn reserve(&mut self, placement: &Placement) -> Result<PlacementAnswer, FleetStoreError> {
        let Placement { host, ticket, pools, memory, lifetime } = placement;
        let lifetime = millis(*lifetime.min(&LONGEST_TICKET)).to_string();
        let mut arguments = vec![host.to_string(), ticket.to_string(), lifetime, memory.0.to_string()];
        arguments.extend(pools.iter().flat_map(|(pool, limit)| [pool.to_string(), limit.to_string()]));
        let (status, mut reply) = self.link.call("reserve", &arguments)?;
        let answer = match status.as_str() {
            "reserved" => Ok(PlacementAnswer::Reserved),
            "full" => reply
                .name()
                .and_then(|pool| Ok(PlacementAnswer::Full { pool, limit: reply.places()?, held: reply.places()? })),
            "memory" => reply.number().map(|left| PlacementAnswer::NoMemory { available: Bytes(left) }),
            "unreachable" => Ok(PlacementAnswer::HostUnreachable),
            "paused" => reply.number().map(|left| PlacementAnswer::Paused(self.bounded(left))),
            _ => Err("a response to a reservation"),
        };
        answer.map_err(|expected| self.nonsense(expected))
    }

    fn watch(&mut self, wake: &mut dyn FnMut(StoreCall) -> ControlFlow<()>) -> Result<(), FleetStoreError> {
        let access = self.link.access().clone();
        let failed = |error| access.error(&error);
        let mut connection = access.connect()?;
        cmd("SUBSCRIBE").arg(access.channel()).query::<Value>(&mut connection).map_err(failed)?;
        let (mut flow, mut silent) = (wake(StoreCall::Listening), 0);
        while flow.is_continue() {
            let message = connection.next_message(Duration::from_secs(1)).map_err(failed)?;
            silent = if message.is_some() { 0 } else { silent + 1 };
            if silent == PING_AFTER {
                connection.begin();
                connection.send(&cmd("PING").get_packed_command()).map_err(|error| failed(error.into()))?;
            } else if silent > PING_AFTER + PONG_WITHIN {
                return Err(failed(RedisError::from(io::Error::from(io::ErrorKind::TimedOut))));
            }
            let called = message.is_some_and(|message| is_called(&message, &self.host));
            flow = wake(if called { StoreCall::Place } else { StoreCall::Idle });
        }
        Ok(())
    }

    fn health(&mut self) -> Result<StoreHealth, FleetStoreError> {
        let (info, round_trip) = self.info()?;
        let field = |name| info_field(&info, name).unwrap_or_default();
        Ok(StoreHealth {
            version: printable(field("redis_version"), MAX_SETTING),
            eviction_policy: printable(field("maxmemory_policy"), MAX_SETTING),
            persistent: field("aof_enabled") == "1",
            replica: field("role") == "slave",
            round_trip,
            clock_ahead: self.clock_ahead()?,
        })
    }
}

fn is_called(message: &Value, host: &FleetName) -> bool {
    let Value::Array(parts) = message else { return false };
    let [Value::BulkString(kind), _, Value::BulkString(names)] = &parts[..] else { return false };
    kind == b"message" && names.split(|byte| *byte == b' ').any(|name| name == host.as_str().as_bytes())
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
