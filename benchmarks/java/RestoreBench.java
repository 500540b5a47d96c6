import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Restores a persistent Kafka Streams store from its changelog, and prints what it took as one line of JSON.
 *
 * <p>Arguments: input topic, store name, number of partitions, then Streams settings as key=value.
 */
public final class RestoreBench {
    private static final long PATIENCE_SECONDS = 1500;

    public static void main(String[] arguments) throws Exception {
        String input = arguments[0];
        String store = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        Properties settings = new Properties();
        for (int i = 3; i < arguments.length; i++) {
            String[] setting = arguments[i].split("=", 2);
            settings.setProperty(setting[0], setting[1]);
        }

        Topology topology = new Topology();
        topology.addSource("input", new ByteArrayDeserializer(), new ByteArrayDeserializer(), input);
        topology.addProcessor("keeper", Keeper::new, "input");
        topology.addStateStore(
            Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(store), Serdes.Bytes(), Serdes.ByteArray()),
            "keeper");

        Restores restores = new Restores(partitions);
        CountDownLatch running = new CountDownLatch(1);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        KafkaStreams streams = new KafkaStreams(topology, settings);
        streams.setGlobalStateRestoreListener(restores);
        streams.setUncaughtExceptionHandler(error -> {
            failure.compareAndSet(null, error);
            restores.giveUp();
            running.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING && restores.done.getCount() == 0) {
                running.countDown();
            }
        });
        streams.start();
        boolean inTime = restores.done.await(PATIENCE_SECONDS, TimeUnit.SECONDS)
            && running.await(PATIENCE_SECONDS, TimeUnit.SECONDS);
        if (failure.get() != null || !inTime) {
            if (failure.get() != null) {
                failure.get().printStackTrace();
            } else {
                System.err.println("not restored in time, state " + streams.state());
            }
            System.exit(1);
        }

        long keys = 0;
        ReadOnlyKeyValueStore<Bytes, byte[]> restored = streams.store(
            StoreQueryParameters.fromNameAndType(store, QueryableStoreTypes.<Bytes, byte[]>keyValueStore()));
        try (KeyValueIterator<Bytes, byte[]> entries = restored.all()) {
            while (entries.hasNext()) {
                entries.next();
                keys++;
            }
        }
        // Without leaving the group the next start would wait for this member's session to time out.
        streams.close(CloseOptions.timeout(Duration.ofSeconds(60))
            .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
        System.out.printf(
            java.util.Locale.ROOT,
            "{\"seconds\": %.6f, \"replayed\": %d, \"keys\": %d}%n",
            restores.seconds(), restores.records.get(), keys);
    }

    /** The store belongs to it; nothing comes from the input topic. */
    private static final class Keeper implements Processor<byte[], byte[], Void, Void> {
        @Override
        public void process(Record<byte[], byte[]> record) {
        }
    }

    /** From the start of the first partition's restore to the end of the last one's. */
    private static final class Restores implements StateRestoreListener {
        final CountDownLatch done;
        final AtomicLong records = new AtomicLong();
        private long begun;
        private long ended;

        Restores(int partitions) {
            done = new CountDownLatch(partitions);
        }

        @Override
        public synchronized void onRestoreStart(TopicPartition partition, String store, long begin, long end) {
            if (begun == 0) {
                begun = System.nanoTime();
            }
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long restored) {
        }

        @Override
        public synchronized void onRestoreEnd(TopicPartition partition, String store, long restored) {
            ended = System.nanoTime();
            records.addAndGet(restored);
            done.countDown();
        }

        void giveUp() {
            while (done.getCount() > 0) {
                done.countDown();
            }
        }

        synchronized double seconds() {
            return (ended - begun) / 1e9;
        }
    }
}
