//! Terminating, freezing and throttling processes.
//!
//! A user ([`requests`]), the configuration ([`policy`]) or a shortage of memory ([`emergency`]) proposes candidates.
//! [`exemptions`] decides which of them may be touched, now and again before each signal. [`execution`] then runs the action;
//! each step is logged before it is done.

mod action;
mod action_tracker;
mod authority;
mod emergency;
mod emergency_state;
mod execution;
mod exemptions;
mod finish;
mod holds;
mod policy;
mod progress;
mod receipts;
mod recovery;
mod requests;
mod suspend;
mod suspend_detector;
mod targets;

pub use self::action::{
    Action, ActionLogRecord, Batch, BatchResult, Initiator, Justification, Operation, OperationOutcome, Permissions,
    TargetSnapshot,
};
pub(crate) use self::action_tracker::ActionTracker;
pub use self::authority::{Authority, ExemptionReason};
pub use self::progress::ActionPlan;
pub use self::requests::{ActionRequest, ActionRequestError, RequestedAction};
