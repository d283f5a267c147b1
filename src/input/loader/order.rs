//! Order of the items in the steps, the same for every rank; a pure function. The global batch of a step equals the
//! batch of a single rank with as many images, so the number of ranks does not change the training data.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};

use crate::augment::Generator;

/// An item, and the epoch in which it is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleIndex {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Index in the data set.
    pub item: u64,
}

/// A rank's part of every global batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Images of all ranks.
    pub global_batch: u64,
    /// Index of this rank's first image among them.
    pub first: u64,
    /// Images of this rank.
    pub samples: u64,
}

/// Order of the items, epoch by epoch.
#[derive(Debug)]
pub struct Order {
    items: u64,
    /// Seed; `None` keeps the stored order.
    shuffle: Option<u64>,
    share: Share,
    /// Number of steps that are repeated; `None` uses all.
    repeated: Option<u64>,
    /// Cached orders of the most recent epochs.
    shuffled: Mutex<Vec<(u64, Arc<[u32]>)>>,
}

/// Number of cached orders: threads are at most one epoch apart.
const CACHED_ORDERS: usize = 2;

impl Order {
    /// Creates the order of `items` items, shuffled in every epoch by the seed, or as stored.
    ///
    /// # Errors
    ///
    /// Fails if there are no items or more than 2^32, or if the share does not lie within the global batch.
    pub fn new(items: u64, shuffle: Option<u64>, share: Share) -> Result<Order> {
        ensure!(
            (1..=1 << 32).contains(&items),
            "an order of training of {items} items is not possible: use 1 to 2^32 \
                                                 items"
        );
        ensure!(
            share.samples > 0 && share.first + share.samples <= share.global_batch,
            "images {} to {} are outside of a global batch of {}",
            share.first,
            share.first + share.samples,
            share.global_batch
        );
        Ok(Order { items, shuffle, share, repeated: None, shuffled: Mutex::default() })
    }

    /// Repeats the images of the first `steps` steps: a data set that is partly in memory.
    pub fn repeating(self, steps: u64) -> Order {
        Order { repeated: Some(steps.max(1)), ..self }
    }

    /// Returns the steps per epoch. The last one is filled up with the epoch's first items, like MXNet's
    /// `round_batch`.
    pub fn steps(&self) -> u64 {
        self.items.div_ceil(self.share.global_batch)
    }

    /// Returns the number of this rank's images in a step that count: the rest only fill it up. Each item counts once
    /// per epoch.
    pub fn batch_samples(&self, step: u64) -> u64 {
        let first = step % self.steps() * self.share.global_batch + self.share.first;
        self.items.saturating_sub(first).min(self.share.samples)
    }

    /// Returns the item of image `slot` of this rank in `step`, which is counted over all epochs.
    pub fn draw(&self, step: u64, slot: u64) -> SampleIndex {
        let step = self.repeated.map_or(step, |steps| step % steps);
        let (epoch, step) = (step / self.steps(), step % self.steps());
        let place = (step * self.share.global_batch + self.share.first + slot) % self.items;
        let item = match self.shuffle {
            Some(seed) => u64::from(self.shuffled(seed, epoch)[place as usize]),
            None => place,
        };
        SampleIndex { epoch, item }
    }

    fn shuffled(&self, seed: u64, epoch: u64) -> Arc<[u32]> {
        let mut cached = self.shuffled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, order)) = cached.iter().find(|(of, _)| *of == epoch) {
            return order.clone();
        }
        let order: Arc<[u32]> = shuffle(self.items, seed, epoch).into();
        if cached.len() == CACHED_ORDERS {
            cached.remove(0);
        }
        cached.push((epoch, order.clone()));
        order
    }
}

/// Fisher-Yates shuffle (Knuth, volume 2, 3.4.2 P), with random numbers that no image uses.
fn shuffle(items: u64, seed: u64, epoch: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..=(items - 1) as u32).collect();
    let mut generator = Generator::for_image(seed, epoch, u64::MAX);
    for last in (1..order.len()).rev() {
        order.swap(last, generator.up_to(last));
    }
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use expect_test::expect;

    use super::*;

    fn epoch(items: u64, ranks: u64, samples: u64, epoch: u64) -> Vec<Vec<u64>> {
        let share = |rank| Share { global_batch: ranks * samples, first: rank * samples, samples };
        let orders: Vec<Order> =
            (0..ranks).map(|rank| Order::new(items, Some(7), share(rank)).expect("a share")).collect();
        let steps = orders[0].steps();
        let global_batch = |step| -> Vec<u64> {
            let of_rank = |order: &Order| -> Vec<u64> {
                (0..samples).map(|slot| order.draw(epoch * steps + step, slot)).map(|draw| draw.item).collect()
            };
            orders.iter().flat_map(of_rank).collect()
        };
        (0..steps).map(global_batch).collect()
    }

    #[test]
    fn ranks_share_the_order_of_one_rank() {
        for number in [0, 3] {
            let alone = epoch(1003, 1, 12, number);
            for ranks in [2, 3, 4] {
                assert_eq!(epoch(1003, ranks, 12 / ranks, number), alone, "{ranks} ranks");
            }
        }
        assert_ne!(epoch(1003, 1, 12, 0), epoch(1003, 1, 12, 1));
    }

    #[test]
    fn epoch_has_every_item_and_wraps_around() {
        for (ranks, samples) in [(1, 12), (3, 4), (4, 5)] {
            let all = epoch(103, ranks, samples, 2).concat();
            let mut times: BTreeMap<u64, usize> = BTreeMap::new();
            all[..103].iter().for_each(|item| *times.entry(*item).or_default() += 1);
            assert!(times.len() == 103 && times.values().all(|times| *times == 1), "{ranks} ranks");
            assert_eq!(all[103..], all[..all.len() - 103]);
        }
        let share = |first| Share { global_batch: 8, first, samples: 4 };
        let order = |first| Order::new(13, None, share(first)).expect("a share");
        let counted = |first: u64| (0..4).map(|step| order(first).batch_samples(step)).collect::<Vec<_>>();
        assert_eq!((counted(0), counted(4)), (vec![4, 4, 4, 4], vec![4, 1, 4, 1]));
        assert_eq!(order(4).draw(1, 0), SampleIndex { epoch: 0, item: 12 });
        assert_eq!(order(4).draw(1, 1), SampleIndex { epoch: 0, item: 0 });
        assert_eq!(order(0).draw(2, 1), SampleIndex { epoch: 1, item: 1 });
    }

    #[test]
    fn first_steps_can_be_repeated() {
        let share = Share { global_batch: 4, first: 0, samples: 4 };
        let order = || Order::new(103, Some(7), share).expect("a share");
        let draws = |order: &Order, steps: std::ops::Range<u64>| -> Vec<SampleIndex> {
            steps
                .flat_map(|step| (0..4).map(move |slot| (step, slot)))
                .map(|(step, slot)| order.draw(step, slot))
                .collect()
        };
        let (whole, repeating) = (order(), order().repeating(3));
        assert_eq!(draws(&repeating, 0..3), draws(&whole, 0..3));
        assert_eq!(draws(&repeating, 3..6), draws(&whole, 0..3));
        assert_ne!(draws(&whole, 3..6), draws(&whole, 0..3));
    }

    #[test]
    fn all_orders_are_equally_likely() {
        // Each of the six orders of three items, over 6,000 epochs: five standard deviations are 145.
        let mut times: BTreeMap<Vec<u32>, i32> = BTreeMap::new();
        (0..6000).for_each(|epoch| *times.entry(shuffle(3, 1, epoch)).or_default() += 1);
        assert!(times.len() == 6 && times.values().all(|times| (times - 1000).abs() < 145), "{times:?}");
    }

    #[test]
    fn invalid_shares_are_rejected() {
        let share = Share { global_batch: 8, first: 6, samples: 4 };
        let error = Order::new(10, None, share).expect_err("refused").to_string();
        expect!["images 6 to 10 are outside of a global batch of 8"].assert_eq(&error);
        assert!(Order::new(0, None, Share { first: 0, ..share }).is_err());
    }
}
