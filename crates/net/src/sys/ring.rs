//! A safe interface to io_uring: requests and completions are values, and this module owns all
//! memory that the kernel reads or writes meanwhile.
//!
//! - A send owns its queue until its completion, so no bytes can be appended or freed meanwhile.
//! - Received bytes are spans of the provided buffers.
//! - Requests contain descriptors as numbers. If a descriptor were closed while its request is
//!   queued, the number could become another socket's. [`Ring::close_later`] keeps a descriptor
//!   open until the kernel has taken all queued requests.
//! - `user_data` has a kind in the top byte and below it a slot (24 bits) and generation of a
//!   connection, or an index. A completion of a closed connection has a stale id.
//! - When the ring is dropped, every request is cancelled and has ended before memory is freed.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::event::PollFlags;
use rustix::net::{SendFlags, SocketFlags};
use stdx::ByteQueue;

use super::buffers::{More, ProvidedBuffers, Region};
use super::span::Span;
use crate::{ConnId, ListenerId};

/// The number of io_uring's submission entries; each further 512 requests in one turn cost one more
/// system call.
const SUBMISSIONS: u32 = 512;
/// The number of io_uring's completion entries; the kernel stores further completions until the
/// next system call.
const COMPLETIONS: u32 = 4096;
/// The number that identifies io_uring's only group of provided buffers.
const BUFFER_GROUP: u16 = 0;
/// The length of a buffer that takes one receive, in bytes.
const SMALL_BUFFER_LEN_BYTES: usize = 4096;
/// The flag `IORING_ENTER_GETEVENTS`: run deferred work and collect completions.
const ENTER_GETEVENTS: u32 = 1 << 0;
/// The flag `IORING_ENTER_EXT_ARG`: the argument is a timeout and a minimum wait.
const ENTER_EXT_ARG: u32 = 1 << 3;
/// The flag `IOU_PBUF_RING_INC`: several receives fill one buffer, one after another.
const BUFFERS_INCREMENTAL: u16 = 2;

const KIND_SHIFT: u32 = 56;
const KIND_RECEIVE: u64 = 1;
const KIND_WRITABLE: u64 = 2;
const KIND_SEND: u64 = 3;
const KIND_ACCEPT: u64 = 4;
const KIND_WAKE: u64 = 5;
const KIND_CANCEL: u64 = 6;
const KIND_TRIAL: u64 = 7;

/// A completion: the result of a request to the kernel.
pub(crate) enum Completion {
    /// An accept of a listener: a client's socket, or the error that ended the accepting. `more`
    /// states if the kernel continues to accept.
    Accepted { listener: ListenerId, outcome: io::Result<OwnedFd>, more: More },
    /// The result of a receive: bytes, the end of the stream, or an error.
    Received(Received),
    /// A send that has ended, with the queue of the bytes that were not sent.
    Sent { conn: ConnId, queue: ByteQueue, outcome: io::Result<usize> },
    /// A connection whose socket can accept output again, or has failed.
    Writable { conn: ConnId },
    /// A wake-up by another thread. `more` states if the kernel still watches the waker.
    Woken { more: More },
}

/// The result of a receive from a connection by io_uring.
pub(crate) struct Received {
    /// The connection from which bytes were received.
    pub(crate) conn: ConnId,
    /// The received bytes (none at the end of the stream), or the error that ended the receive.
    pub(crate) outcome: io::Result<Span>,
    /// True if the kernel continues to receive for the same request.
    pub(crate) goes_on: bool,
    /// True if the socket has more bytes to receive. Kernels before 6.17 do not report it for Unix
    /// sockets.
    pub(crate) socket_nonempty: bool,
}

/// The condition that ends the wait for completions in [`Ring::enter`].
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    /// The number of completions to wait for, at least 1.
    pub(crate) completions: usize,
    /// The time after which one completion ends the wait, in microseconds. If it is 0, or the
    /// kernel has no minimum wait, the first completion always ends it.
    pub(crate) gather_us: u32,
}

impl Wait {
    /// The condition of a wait without gathering: one completion ends it.
    pub(crate) const FIRST: Wait = Wait { completions: 1, gather_us: 0 };
}

/// A send that the kernel has not completed, and the bytes to send.
struct InFlight {
    conn: ConnId,
    queue: ByteQueue,
}

/// An io_uring (the kernel's queues of requests and results), with the buffers provided to the
/// kernel for received bytes.
pub(crate) struct Ring {
    ring: IoUring,
    sends: Vec<Option<InFlight>>,
    sends_free: Vec<u32>,
    /// The descriptors to close once the queued requests have reached the kernel. Their number is
    /// bounded by the descriptor limit of the process.
    closing: Vec<OwnedFd>,
    /// The memory that the kernel may write to; freed after the ring is dropped.
    region: Rc<Region>,
}

impl Ring {
    /// Creates a ring and its buffers with the best set-up that this kernel accepts. The ring is
    /// tested once, with a receive through provided buffers. `buffers_len_bytes` is the approximate
    /// length of all buffers together.
    ///
    /// # Errors
    /// The reason, for the log, why no ring could be created.
    pub(crate) fn new(buffers_len_bytes: usize) -> Result<(Self, ProvidedBuffers), String> {
        let mut reason = String::new();
        for setup in SETUPS {
            match Self::with_setup(setup, buffers_len_bytes) {
                Ok(ring) => return Ok(ring),
                Err(error) => reason = error,
            }
        }
        Err(reason)
    }

    fn with_setup(setup: Setup, buffers_len_bytes: usize) -> Result<(Self, ProvidedBuffers), String> {
        let ring = build_ring(setup).map_err(|error| format!("io_uring_setup: {error}"))?;
        let mut buffers = register_buffers(&ring, setup, buffers_len_bytes)
            .map_err(|error| format!("registering a buffer ring: {error}"))?;
        let region = Rc::clone(buffers.region());
        let mut ring = Self { ring, sends: Vec::new(), sends_free: Vec::new(), closing: Vec::new(), region };
        ring.try_out(&mut buffers).map_err(|error| format!("multishot receive: {error}"))?;
        Ok((ring, buffers))
    }

    /// Receives one byte through a socket pair, to test the ring. This detects a kernel that
    /// accepts the set-up but not the requests.
    fn try_out(&mut self, buffers: &mut ProvidedBuffers) -> io::Result<()> {
        let (near, far) = UnixStream::pair()?;
        rustix::net::send(&far, b"?", SendFlags::NOSIGNAL)?;
        drop(far);
        let entry = opcode::RecvMulti::new(Fd(near.as_raw_fd()), BUFFER_GROUP).build();
        self.push(entry.user_data(KIND_TRIAL << KIND_SHIFT));
        let (mut received, mut ended) = (0, false);
        for _ in 0..4 {
            self.enter(Some(Wait::FIRST), Some(Duration::from_secs(1)))?;
            while let Some(entry) = self.ring.completion().next() {
                if entry.result() < 0 {
                    return Err(io::Error::from_raw_os_error(-entry.result()));
                }
                if let Some(id) = cqueue::buffer_select(entry.flags()) {
                    let more = cqueue::buffer_more(entry.flags()).into();
                    received += buffers.received(id, entry.result() as u32, more).len();
                }
                ended |= !cqueue::more(entry.flags());
            }
            if ended && received == 1 {
                return Ok(());
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    fn push(&mut self, entry: squeue::Entry) {
        loop {
            // SAFETY: every request that is built in this file uses memory owned by this ring until
            // its completion (queues in `sends`, the region) or none, and descriptors that stay
            // open until it has reached the kernel.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            // Full: the kernel takes entries without waiting for anything.
            self.submit();
        }
    }

    /// Submits the queued requests to the kernel. If the call is interrupted or the kernel lacks
    /// memory, the next `enter` submits the rest.
    pub(crate) fn submit(&mut self) {
        let _ = self.ring.submit();
    }

    /// Queues a request that accepts clients of `listener` again and again, until an accept fails.
    pub(crate) fn push_accept(&mut self, listener: impl AsFd, id: ListenerId) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let entry = opcode::AcceptMulti::new(fd_of(&listener)).flags(flags.bits() as i32).build();
        self.push(entry.user_data(KIND_ACCEPT << KIND_SHIFT | id.index() as u64));
    }

    /// Queues a request that receives from `socket` again and again: until the end of the stream, a
    /// cancellation, or a lack of free buffers.
    pub(crate) fn push_receive(&mut self, socket: impl AsFd, conn: ConnId) {
        let entry = opcode::RecvMulti::new(fd_of(&socket), BUFFER_GROUP).build();
        self.push(entry.user_data(tag(KIND_RECEIVE, conn)));
    }

    /// Queues a request that receives from `socket` once, at most `len_bytes` bytes.
    pub(crate) fn push_receive_once(&mut self, socket: impl AsFd, conn: ConnId, len_bytes: u32) {
        let entry = opcode::Recv::new(fd_of(&socket), std::ptr::null_mut(), len_bytes);
        let entry = entry.buf_group(BUFFER_GROUP).build().flags(squeue::Flags::BUFFER_SELECT);
        self.push(entry.user_data(tag(KIND_RECEIVE, conn)));
    }

    /// Queues a request that completes once, when `socket` accepts output again.
    pub(crate) fn push_writable(&mut self, socket: impl AsFd, conn: ConnId) {
        let entry = opcode::PollAdd::new(fd_of(&socket), u32::from(PollFlags::OUT.bits())).build();
        self.push(entry.user_data(tag(KIND_WRITABLE, conn)));
    }

    /// Queues a request that watches the event descriptor of the waker.
    pub(crate) fn push_wake(&mut self, event_fd: impl AsFd) {
        let flags = u32::from(PollFlags::IN.bits());
        let entry = opcode::PollAdd::new(fd_of(&event_fd), flags).multi(true).build();
        self.push(entry.user_data(KIND_WAKE << KIND_SHIFT));
    }

    /// Queues a send of `queue`, which is one contiguous piece and not empty.
    pub(crate) fn push_send(&mut self, socket: impl AsFd, conn: ConnId, queue: ByteQueue) {
        let bytes = queue.as_single().expect("the caller sends queues of several pieces itself");
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let flags = SendFlags::NOSIGNAL.bits() as i32;
        let entry = opcode::Send::new(fd_of(&socket), bytes.as_ptr(), len).flags(flags).build();
        let slot = self.sends_free.pop().unwrap_or_else(|| {
            self.sends.push(None);
            (self.sends.len() - 1) as u32
        });
        // Moving the queue does not move its bytes, which are on the heap.
        self.sends[slot as usize] = Some(InFlight { conn, queue });
        self.push(entry.user_data(KIND_SEND << KIND_SHIFT | u64::from(slot)));
    }

    /// Cancels the receive of `conn`. The last completion of the receive follows.
    pub(crate) fn cancel_receive(&mut self, conn: ConnId) {
        self.push_cancel(tag(KIND_RECEIVE, conn));
    }

    /// Cancels the request that waits until the socket of `conn` accepts output.
    pub(crate) fn cancel_writable(&mut self, conn: ConnId) {
        self.push_cancel(tag(KIND_WRITABLE, conn));
    }

    /// Cancels the sends of `conn`. Their completions return the byte queues with the unsent bytes.
    pub(crate) fn cancel_sends(&mut self, conn: ConnId) {
        for slot in 0..self.sends.len() {
            if self.sends[slot].as_ref().is_some_and(|send| send.conn == conn) {
                self.push_cancel(KIND_SEND << KIND_SHIFT | slot as u64);
            }
        }
    }

    /// Cancels the request that accepts clients of listener `id`.
    pub(crate) fn cancel_accept(&mut self, id: ListenerId) {
        self.push_cancel(KIND_ACCEPT << KIND_SHIFT | id.index() as u64);
    }

    fn push_cancel(&mut self, user_data: u64) {
        let entry = opcode::AsyncCancel::new(user_data).build();
        let entry = entry.flags(squeue::Flags::SKIP_SUCCESS);
        self.push(entry.user_data(KIND_CANCEL << KIND_SHIFT));
    }

    /// Stores `fd` to close it once the kernel has taken all queued requests. Otherwise a queued
    /// request could refer to a new socket with the same number.
    pub(crate) fn close_later(&mut self, fd: OwnedFd) {
        self.closing.push(fd);
    }

    /// Closes the descriptors passed to [`close_later`](Self::close_later), unless requests are
    /// still queued. If the kernel lacks memory, it takes only some of the requests, or none.
    fn close_submitted(&mut self) {
        if !self.closing.is_empty() && self.ring.submission().is_empty() {
            self.closing.clear();
        }
    }

    /// Submits the queued requests and waits for completions, in one system call. Waits until
    /// `wait` is fulfilled, at most for `timeout`; does not wait if `wait` is `None`. If
    /// descriptors must be closed, they are closed before the wait, with further system calls.
    pub(crate) fn enter(&mut self, wait: Option<Wait>, timeout: Option<Duration>) -> io::Result<()> {
        if wait.is_some() && !self.closing.is_empty() {
            // Peers must see the end of their connections now, not after the wait.
            self.submit();
            self.close_submitted();
        }
        // Descriptors that a shortage has left open must not wait either.
        let wait = wait.filter(|_| self.closing.is_empty());
        let to_submit = self.ring.submission().len() as u32;
        let timespec =
            timeout.map(|timeout| Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos()));
        let mut arguments = SubmitArgs::new();
        if let Some(timespec) = &timespec {
            arguments = arguments.timespec(timespec);
        }
        let (wanted, flags) = match wait {
            None => (0, ENTER_GETEVENTS),
            Some(wait) if wait.gather_us > 0 && self.ring.params().is_feature_min_timeout() => {
                arguments = arguments.min_wait_usec(wait.gather_us);
                (wait.completions as u32, ENTER_GETEVENTS | ENTER_EXT_ARG)
            }
            Some(_) => (1, ENTER_GETEVENTS | ENTER_EXT_ARG),
        };
        let arguments = wait.map(|_| &arguments);
        let submitter = self.ring.submitter();
        // SAFETY: the argument is the extended one that its flag announces, alive over the call;
        // the requests were vouched for when they were pushed.
        let entered = unsafe { submitter.enter(to_submit, wanted, flags, arguments) };
        self.close_submitted();
        match entered.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) => Ok(()),
            // The timeout, a signal, or completions to be taken first: nothing is lost.
            Err((Some(ETIME | EINTR | EBUSY | EAGAIN), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// Takes the next completion that the kernel has reported; `None` if there is none.
    pub(crate) fn next_completion(&mut self, buffers: &mut ProvidedBuffers) -> Option<Completion> {
        debug_assert!(Rc::ptr_eq(&self.region, buffers.region()), "the buffers of another ring");
        loop {
            let entry = self.ring.completion().next()?;
            let (user_data, result, flags) = (entry.user_data(), entry.result(), entry.flags());
            let outcome =
                if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result as usize) };
            let more = cqueue::more(flags);
            return Some(match user_data >> KIND_SHIFT {
                KIND_RECEIVE => {
                    let span = match cqueue::buffer_select(flags) {
                        Some(id) => {
                            let more = cqueue::buffer_more(flags).into();
                            buffers.received(id, result.max(0) as u32, more)
                        }
                        None => Span::EMPTY,
                    };
                    Completion::Received(Received {
                        conn: conn_of(user_data),
                        outcome: outcome.map(|_| span),
                        goes_on: more,
                        socket_nonempty: cqueue::sock_nonempty(flags),
                    })
                }
                KIND_SEND => {
                    let slot = (user_data & 0xffff_ffff) as usize;
                    let send = self.sends[slot].take().expect("a send completes once");
                    self.sends_free.push(slot as u32);
                    let mut queue = send.queue;
                    queue.advance(*outcome.as_ref().unwrap_or(&0));
                    Completion::Sent { conn: send.conn, queue, outcome }
                }
                KIND_WRITABLE => Completion::Writable { conn: conn_of(user_data) },
                KIND_ACCEPT => {
                    let listener = ListenerId((user_data & 0xffff_ffff) as u32);
                    // SAFETY: a successful accept gives a new descriptor that nobody else owns.
                    let outcome = outcome.map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) });
                    Completion::Accepted { listener, outcome, more: more.into() }
                }
                KIND_WAKE => Completion::Woken { more: more.into() },
                // A cancellation that found nothing, or a late completion of `try_out`.
                _ => continue,
            });
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.submit();
        let cancelled = self.ring.submitter().register_sync_cancel(None, CancelBuilder::any());
        let idle = match cancelled {
            Ok(()) => true,
            Err(error) => error.raw_os_error() == Some(ENOENT),
        };
        let unregistered = self.ring.submitter().unregister_buf_ring(BUFFER_GROUP).is_ok();
        if !(idle && unregistered) {
            // The kernel may still write to the buffers or read from a queue: leak them.
            std::mem::forget(Rc::clone(&self.region));
            std::mem::forget(std::mem::take(&mut self.sends));
        }
    }
}

const ENOENT: i32 = 2;
const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const EBUSY: i32 = 16;
const ETIME: i32 = 62;

fn fd_of(fd: &impl AsFd) -> Fd {
    Fd(fd.as_fd().as_raw_fd())
}

fn tag(kind: u64, conn: ConnId) -> u64 {
    assert!(conn.index() < 1 << 24, "sixteen million connections on one thread");
    kind << KIND_SHIFT | (conn.index() as u64) << 32 | u64::from(conn.generation())
}

fn conn_of(user_data: u64) -> ConnId {
    ConnId::new((user_data >> 32) as u32 & 0xff_ffff, user_data as u32)
}

/// The kernel features that an io_uring uses if the kernel has them.
#[derive(Clone, Copy, Debug)]
struct Setup {
    /// True if the kernel does the work of requests only inside system calls of this thread (Linux
    /// 6.1): without interruptions and locks. Otherwise it does the work whenever the thread is in
    /// the kernel (5.19).
    defer: bool,
    /// True if the kernel reads submission entries in order, without an index array (Linux 6.6).
    no_sqarray: bool,
    /// True if several receives fill one buffer, one after another (Linux 6.12).
    incremental: bool,
}

/// The combinations of kernel features with which an io_uring is tried, best first.
const SETUPS: [Setup; 4] = [
    Setup { defer: true, no_sqarray: true, incremental: true },
    Setup { defer: true, no_sqarray: true, incremental: false },
    Setup { defer: true, no_sqarray: false, incremental: false },
    Setup { defer: false, no_sqarray: false, incremental: false },
];

fn build_ring(setup: Setup) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_clamp().setup_cqsize(COMPLETIONS).setup_submit_all();
    if setup.defer {
        builder.setup_single_issuer().setup_defer_taskrun();
    } else {
        builder.setup_coop_taskrun();
    }
    if setup.no_sqarray {
        builder.setup_no_sqarray();
    }
    builder.build(SUBMISSIONS)
}

/// Registers the buffers: few large ones if they are incremental, else many small ones.
fn register_buffers(ring: &IoUring, setup: Setup, len_bytes: usize) -> io::Result<ProvidedBuffers> {
    let (count, flags) = if setup.incremental {
        (32, BUFFERS_INCREMENTAL)
    } else {
        ((len_bytes / SMALL_BUFFER_LEN_BYTES).clamp(16, 4096).next_power_of_two(), 0)
    };
    let buffer_len = (len_bytes / count).next_multiple_of(64).max(64);
    let buffers = ProvidedBuffers::new(count as u16, buffer_len as u32);
    let address = buffers.region().entries_address();
    let submitter = ring.submitter();
    // SAFETY: the ring of entries lives until the registration is undone: `Ring` owns it from here
    // on and leaks it where undoing fails.
    unsafe { submitter.register_buf_ring_with_flags(address, buffers.count(), BUFFER_GROUP, flags) }?;
    Ok(buffers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::BorrowedFd;

    /// Runs `test` with an io_uring for every combination of features that this kernel accepts.
    fn on_each_setup(test: impl Fn(Ring, ProvidedBuffers)) {
        for setup in SETUPS {
            match Ring::with_setup(setup, 64 * 1024) {
                Ok((ring, buffers)) => test(ring, buffers),
                Err(error) => println!("skipped: {setup:?}: {error}"),
            }
        }
    }

    const ID: u64 = 1 << 32 | 7;

    fn wait(ring: &mut Ring, buffers: &mut ProvidedBuffers) -> Completion {
        for _ in 0..100 {
            if let Some(completion) = ring.next_completion(buffers) {
                return completion;
            }
            ring.enter(Some(Wait::FIRST), Some(Duration::from_secs(1))).unwrap();
        }
        panic!("nothing completed");
    }

    #[test]
    fn received_bytes_are_intact_through_many_rounds_of_the_buffers() {
        on_each_setup(|mut ring, mut buffers| {
            let (near, far) = UnixStream::pair().unwrap();
            let conn = ConnId::from_u64(ID);
            ring.push_receive(&near, conn);
            for round in 0..400_usize {
                let sent: Vec<u8> = (0..1 + round * 7 % 1500).map(|at| (at * 31 + round) as u8).collect();
                rustix::net::send(&far, &sent, SendFlags::NOSIGNAL).unwrap();
                let mut got = Vec::new();
                while got.len() < sent.len() {
                    let Completion::Received(received) = wait(&mut ring, &mut buffers) else {
                        panic!("something else");
                    };
                    assert_eq!(received.conn, conn);
                    match received.outcome {
                        Ok(span) => got.extend_from_slice(buffers.bytes(span)),
                        Err(error) => {
                            assert_eq!(error.raw_os_error(), Some(105), "out of buffers, if anything")
                        }
                    }
                    if !received.goes_on {
                        ring.push_receive(&near, conn);
                    }
                }
                assert!(got == sent, "round {round}");
                buffers.end_turn();
            }
            drop(far);
            let Completion::Received(end) = wait(&mut ring, &mut buffers) else { panic!("something else") };
            assert!(!end.goes_on && end.outcome.is_ok_and(|span| span.len() == 0));
        });
    }

    #[test]
    fn a_shortage_of_buffers_ends_the_receive_and_loses_nothing() {
        on_each_setup(|mut ring, mut buffers| {
            let (near, far) = UnixStream::pair().unwrap();
            let conn = ConnId::from_u64(ID);
            let sent: Vec<u8> = (0..100_000_u32).map(|at| (at * 7 / 3) as u8).collect();
            assert_eq!(rustix::net::send(&far, &sent, SendFlags::NOSIGNAL).unwrap(), sent.len());
            ring.push_receive(&near, conn);
            let (mut got, mut shortages) = (Vec::new(), 0);
            while got.len() < sent.len() {
                let Completion::Received(received) = wait(&mut ring, &mut buffers) else {
                    panic!("something else");
                };
                match received.outcome {
                    Ok(span) => got.extend_from_slice(buffers.bytes(span)),
                    Err(error) => {
                        assert_eq!(error.raw_os_error(), Some(105));
                        assert!(!received.goes_on);
                        shortages += 1;
                        buffers.end_turn();
                        ring.push_receive(&near, conn);
                    }
                }
            }
            assert!(shortages > 0);
            assert!(got == sent);
        });
    }

    #[test]
    fn a_single_receive_takes_no_more_than_it_may_and_says_that_more_waits() {
        on_each_setup(|mut ring, mut buffers| {
            let (near, far) = UnixStream::pair().unwrap();
            let conn = ConnId::from_u64(ID);
            rustix::net::send(&far, &[7; 5000], SendFlags::NOSIGNAL).unwrap();
            let mut left = 5000;
            while left > 0 {
                ring.push_receive_once(&near, conn, 1000);
                let Completion::Received(received) = wait(&mut ring, &mut buffers) else {
                    panic!("something else");
                };
                let len = received.outcome.map(|span| buffers.bytes(span).len()).unwrap();
                assert!(!received.goes_on && (1..=1000).contains(&len));
                left -= len;
                // Older kernels do not report it for Unix sockets.
                assert!(left > 0 || !received.socket_nonempty);
                buffers.end_turn();
            }
        });
    }

    #[test]
    fn a_send_gives_its_queue_back_with_what_is_left() {
        on_each_setup(|mut ring, mut buffers| {
            let (near, far) = UnixStream::pair().unwrap();
            let conn = ConnId::from_u64(ID);
            let mut queue = ByteQueue::new();
            queue.tail_mut().extend_from_slice(b"hello");
            ring.push_send(&near, conn, queue);
            let Completion::Sent { conn: to, queue, outcome } = wait(&mut ring, &mut buffers) else {
                panic!("something else");
            };
            assert_eq!((to, outcome.unwrap()), (conn, 5));
            assert!(queue.is_empty());
            let mut got = [0; 5];
            rustix::net::recv(&far, &mut got, rustix::net::RecvFlags::DONTWAIT).unwrap();
            assert_eq!(&got, b"hello");
            // Nobody reads: cancelled, it comes back with the rest, and nothing is freed before.
            let mut queue = ByteQueue::new();
            queue.tail_mut().resize(4 << 20, 1);
            ring.push_send(&near, conn, queue);
            ring.enter(None, None).unwrap();
            ring.cancel_sends(conn);
            let Completion::Sent { queue, outcome, .. } = wait(&mut ring, &mut buffers) else {
                panic!("something else");
            };
            assert_eq!(queue.len_bytes(), (4 << 20) - outcome.unwrap_or(0));
            assert!(!queue.is_empty());
        });
    }

    #[test]
    fn a_descriptor_stays_open_until_all_requests_have_reached_the_kernel() {
        on_each_setup(|mut ring, mut buffers| {
            let (near, far) = UnixStream::pair().unwrap();
            let conn = ConnId::from_u64(ID);
            ring.push_receive(&near, conn);
            ring.cancel_receive(conn);
            ring.close_later(near.into());
            // The kernel takes nothing through this descriptor.
            // SAFETY: the ring keeps its descriptor open.
            let ring_fd = rustix::io::dup(unsafe { BorrowedFd::borrow_raw(ring.ring.as_raw_fd()) }).unwrap();
            let (null, _peer) = UnixStream::pair().unwrap();
            redirect(&ring, &null);
            assert!(ring.enter(None, None).is_err());
            assert!(!is_at_its_end(&far), "closed before the receive was handed over");
            ring.enter(Some(Wait::FIRST), None).unwrap_err();
            assert!(!is_at_its_end(&far), "closed before the receive was handed over");
            redirect(&ring, &ring_fd);
            let Completion::Received(received) = wait(&mut ring, &mut buffers) else {
                panic!("something else");
            };
            assert!(received.outcome.is_err_and(|error| error.raw_os_error() == Some(125)), "cancelled");
            assert!(is_at_its_end(&far));
        });
    }

    /// Replaces the file behind the descriptor of `ring` by that of `fd`, so that the kernel takes
    /// no requests.
    fn redirect(ring: &Ring, fd: impl AsFd) {
        // SAFETY: the number belongs to the ring, which outlives this owner of it.
        let target = unsafe { OwnedFd::from_raw_fd(ring.ring.as_raw_fd()) };
        let mut target = std::mem::ManuallyDrop::new(target);
        rustix::io::dup2(fd, &mut target).unwrap();
    }

    /// Returns true if the peer of `stream` has closed its side and all its bytes were read.
    fn is_at_its_end(stream: &UnixStream) -> bool {
        let got = rustix::net::recv(stream, &mut [0; 8], rustix::net::RecvFlags::DONTWAIT);
        got.is_ok_and(|(len, _)| len == 0)
    }

    #[test]
    #[should_panic(expected = "input of a past turn")]
    fn a_span_of_a_past_turn_is_refused() {
        let mut buffers = ProvidedBuffers::new(4, 64);
        let span = buffers.received(0, 8, More::Follows);
        buffers.end_turn();
        buffers.bytes(span);
    }

    #[test]
    fn dropping_a_ring_with_everything_under_way_returns() {
        on_each_setup(|mut ring, buffers| {
            let (near, _far) = UnixStream::pair().unwrap();
            let conn = ConnId::from_u64(ID);
            let mut queue = ByteQueue::new();
            queue.tail_mut().resize(4 << 20, 1);
            ring.push_receive(&near, conn);
            ring.push_send(&near, conn, queue);
            ring.push_writable(&near, conn);
            ring.enter(None, None).unwrap();
            drop(ring);
            drop(buffers);
        });
    }
}
