//! Sums by MPI_Allreduce over host memory, on the thread that runs backward or on one of its own.
//!
//! Open MPI moves data only inside its calls, and on the CPU the cores are all busy with backward: a second thread can
//! hide the wait for a slower rank, but not the copying.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::{Result, anyhow};
use tch::{Device, Tensor};

use crate::collective::Collective;
use crate::ffi::mpi::{HalfSum, all_reduce_sum};

/// Every bucket is done when [`start`](Collective::start) returns.
pub struct Mpi {
    half_sum: HalfSum,
}

impl Mpi {
    pub fn new() -> Result<Mpi> {
        Ok(Mpi { half_sum: HalfSum::new()? })
    }
}

impl Collective for Mpi {
    fn name(&self) -> &'static str {
        "mpi"
    }

    fn start(&mut self, bucket: &Tensor) -> Result<()> {
        if bucket.device() == Device::Cpu {
            return all_reduce_sum(bucket, &self.half_sum);
        }
        let host = bucket.f_to_device(Device::Cpu)?;
        all_reduce_sum(&host, &self.half_sum)?;
        bucket.shallow_clone().f_copy_(&host)?;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

enum Order {
    Sum(Tensor),
    Report,
}

/// Buckets go to a thread that makes all MPI calls while backward goes on.
pub struct MpiOnOwnThread {
    orders: Sender<Order>,
    reports: Receiver<Result<()>>,
}

impl MpiOnOwnThread {
    pub fn new() -> Result<MpiOnOwnThread> {
        let mut engine = Mpi::new()?;
        let (orders, inbox) = channel();
        let (outbox, reports) = channel();
        thread::Builder::new().name("mpi".to_owned()).spawn(move || {
            let mut outcome = Ok(());
            for order in inbox {
                match order {
                    Order::Sum(bucket) if outcome.is_ok() => outcome = engine.start(&bucket),
                    Order::Sum(_) => {}
                    Order::Report => {
                        if outbox.send(std::mem::replace(&mut outcome, Ok(()))).is_err() {
                            return;
                        }
                    }
                }
            }
        })?;
        Ok(MpiOnOwnThread { orders, reports })
    }
}

impl Collective for MpiOnOwnThread {
    fn name(&self) -> &'static str {
        "mpi"
    }

    fn start(&mut self, bucket: &Tensor) -> Result<()> {
        self.orders.send(Order::Sum(bucket.shallow_clone())).map_err(|_| anyhow!("the MPI thread has ended"))
    }

    fn finish(&mut self) -> Result<()> {
        self.orders.send(Order::Report).map_err(|_| anyhow!("the MPI thread has ended"))?;
        self.reports.recv().map_err(|_| anyhow!("the MPI thread has ended"))?
    }
}
