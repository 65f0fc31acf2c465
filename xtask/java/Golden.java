import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.File;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * Writes a sample of every message in every version with Apache Kafka's own classes, or reads such samples and compares
 * their values.
 *
 * Usage: Golden write|verify MANIFEST FILE. A line of the manifest: class, schema, lowest and highest version.
 * A sample: name (length as short), version (short), kind (byte), body (length as int).
 *
 * Field values are derived from the field's path alone, so that another implementation can make the same ones:
 * a seed is hashed with the name of each step (FNV-1a), and a value is the seed after one more mixing.
 */
public final class Golden {
    static final int POPULATED = 0;
    static final int NULLS = 1;
    static final int DEFAULTS = 2;

    record Entry(String name, Class<?> type, JsonNode schema, short min, short max) { }

    private final JsonNode schema;
    private final short version;
    private final int kind;
    private final Map<String, JsonNode> commonStructs = new HashMap<>();

    private Golden(JsonNode schema, short version, int kind) {
        this.schema = schema;
        this.version = version;
        this.kind = kind;
        for (JsonNode common : schema.path("commonStructs")) {
            commonStructs.put(common.get("name").asText(), common);
        }
    }

    public static void main(String[] arguments) throws Exception {
        List<Entry> entries = manifest(Path.of(arguments[1]));
        if (arguments[0].equals("write")) {
            write(entries, new File(arguments[2]));
        } else {
            verify(entries, new File(arguments[2]));
        }
    }

    private static List<Entry> manifest(Path path) throws Exception {
        ObjectMapper mapper = new ObjectMapper().configure(JsonParser.Feature.ALLOW_COMMENTS, true);
        List<Entry> entries = new ArrayList<>();
        for (String line : Files.readAllLines(path)) {
            String[] words = line.split("\t");
            JsonNode schema = mapper.readTree(new File(words[1]));
            entries.add(new Entry(schema.get("name").asText(), Class.forName(words[0]), schema,
                Short.parseShort(words[2]), Short.parseShort(words[3])));
        }
        return entries;
    }

    private static void write(List<Entry> entries, File file) throws Exception {
        int samples = 0;
        try (DataOutputStream out = new DataOutputStream(Files.newOutputStream(file.toPath()))) {
            for (Entry entry : entries) {
                for (short version = entry.min; version <= entry.max; version++) {
                    byte[] populated = null;
                    for (int kind : new int[] {POPULATED, NULLS, DEFAULTS}) {
                        byte[] body = bytes(sample(entry, version, kind), version);
                        if (kind == NULLS && java.util.Arrays.equals(body, populated)) {
                            continue;
                        }
                        populated = kind == POPULATED ? body : populated;
                        byte[] name = entry.name.getBytes(StandardCharsets.UTF_8);
                        out.writeShort(name.length);
                        out.write(name);
                        out.writeShort(version);
                        out.writeByte(kind);
                        out.writeInt(body.length);
                        out.write(body);
                        samples++;
                    }
                }
            }
        }
        System.out.println(samples + " samples of " + entries.size() + " messages written");
    }

    private static void verify(List<Entry> entries, File file) throws Exception {
        Map<String, Entry> byName = new HashMap<>();
        for (Entry entry : entries) {
            byName.put(entry.name, entry);
        }
        int samples = 0;
        int wrong = 0;
        try (DataInputStream in = new DataInputStream(Files.newInputStream(file.toPath()))) {
            while (true) {
                byte[] name;
                try {
                    name = new byte[in.readShort()];
                } catch (EOFException end) {
                    break;
                }
                in.readFully(name);
                short version = in.readShort();
                int kind = in.readByte();
                byte[] body = new byte[in.readInt()];
                in.readFully(body);
                samples++;
                Entry entry = byName.get(new String(name, StandardCharsets.UTF_8));
                String complaint = compare(entry, version, kind, body);
                if (complaint != null) {
                    System.out.println(entry.name + " version " + version + " kind " + kind + ": " + complaint);
                    wrong++;
                }
            }
        }
        System.out.println(samples + " samples read, " + wrong + " wrong");
        System.exit(wrong == 0 && samples > 0 ? 0 : 1);
    }

    private static String compare(Entry entry, short version, int kind, byte[] body) throws Exception {
        Message expected = sample(entry, version, kind);
        Message actual = (Message) instance(entry.type);
        ByteBuffer buffer = ByteBuffer.wrap(body);
        try {
            actual.read(new ByteBufferAccessor(buffer), version);
        } catch (RuntimeException error) {
            return error.toString();
        }
        if (buffer.hasRemaining()) {
            return buffer.remaining() + " bytes after the message";
        }
        return expected.equals(actual) ? null : "expected " + expected + " but read " + actual;
    }

    private static Message sample(Entry entry, short version, int kind) throws Exception {
        Message message = (Message) instance(entry.type);
        Golden golden = new Golden(entry.schema, version, kind);
        golden.fill(message, entry.schema.get("fields"), step(0xcbf29ce484222325L, entry.name));
        return message;
    }

    private static Object instance(Class<?> type) throws Exception {
        Constructor<?> constructor = type.getDeclaredConstructor();
        constructor.setAccessible(true);
        return constructor.newInstance();
    }

    private static byte[] bytes(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException("size() and write() disagree");
        }
        return buffer.array();
    }

    static long step(long seed, String name) {
        for (byte character : name.getBytes(StandardCharsets.UTF_8)) {
            seed = (seed ^ (character & 0xff)) * 0x100000001b3L;
        }
        return seed;
    }

    static long mix(long seed) {
        seed = (seed ^ (seed >>> 30)) * 0xbf58476d1ce4e5b9L;
        seed = (seed ^ (seed >>> 27)) * 0x94d049bb133111ebL;
        return seed ^ (seed >>> 31);
    }

    private boolean holds(JsonNode field, String key) {
        String versions = field.path(key).asText("none");
        if (versions.equals("none")) {
            return false;
        }
        if (versions.endsWith("+")) {
            return version >= Short.parseShort(versions.substring(0, versions.length() - 1));
        }
        String[] ends = versions.split("-");
        return version >= Short.parseShort(ends[0]) && version <= Short.parseShort(ends[ends.length - 1]);
    }

    private void fill(Object target, JsonNode fields, long seed) throws Exception {
        for (JsonNode field : fields) {
            if (!holds(field, field.has("versions") ? "versions" : "taggedVersions")) {
                continue;
            }
            String name = field.get("name").asText();
            Field place = target.getClass().getDeclaredField(name.substring(0, 1).toLowerCase() + name.substring(1));
            place.setAccessible(true);
            set(target, place, field, step(seed, name));
        }
    }

    private void set(Object target, Field place, JsonNode field, long seed) throws Exception {
        boolean isNullable = holds(field, "nullableVersions");
        String type = field.get("type").asText();
        boolean isArray = type.startsWith("[]");
        String element = isArray ? type.substring(2) : type;
        if (kind == NULLS && isNullable) {
            place.set(target, null);
            return;
        }
        boolean isStruct = Character.isUpperCase(element.charAt(0));
        if (kind == DEFAULTS) {
            boolean defaultIsNull = place.get(target) == null;
            if (defaultIsNull ? isNullable : !isStruct) {
                return;
            }
        }
        if (!isStruct) {
            place.set(target, isArray ? plainArray(element, seed) : plain(element, field, place.getType(), seed));
            return;
        }
        JsonNode fields = field.has("fields") ? field.get("fields") : commonStructs.get(element).get("fields");
        if (!isArray) {
            Object value = instance(place.getType());
            fill(value, fields, seed);
            place.set(target, value);
            return;
        }
        place.set(target, structArray(place, fields, seed));
    }

    private Object structArray(Field place, JsonNode fields, long seed) throws Exception {
        Type generic = place.getGenericType();
        boolean isList = generic instanceof ParameterizedType;
        Class<?> container = isList ? ArrayList.class : place.getType();
        Type elementType = isList
            ? ((ParameterizedType) generic).getActualTypeArguments()[0]
            : ((ParameterizedType) container.getGenericSuperclass()).getActualTypeArguments()[0];
        @SuppressWarnings("unchecked")
        Collection<Object> values = (Collection<Object>) instance(container);
        for (int index = 0; index < (kind == DEFAULTS ? 1 : 2); index++) {
            Object value = instance((Class<?>) elementType);
            fill(value, fields, step(seed, Integer.toString(index)));
            values.add(value);
        }
        return values;
    }

    private Object plainArray(String element, long seed) {
        List<Object> values = new ArrayList<>();
        for (int index = 0; index < 2; index++) {
            values.add(plain(element, null, null, step(seed, Integer.toString(index))));
        }
        return values;
    }

    private Object plain(String type, JsonNode field, Class<?> placeType, long seed) {
        long value = mix(seed);
        switch (type) {
            case "bool": return !field.path("default").asText("false").equals("true");
            case "int8": return (byte) value;
            case "int16": return (short) value;
            case "uint16": return (int) (value & 0xffff);
            case "int32": return (int) value;
            case "uint32": return value & 0xffffffffL;
            case "int64": return value;
            case "float64": return (double) (value >>> 40) / 8;
            case "string": return String.format("\u00e9%04x", value & 0xffff);
            case "uuid": return new Uuid(value, mix(value));
            case "bytes": {
                byte[] bytes = {(byte) (value >> 16), (byte) (value >> 8), (byte) value};
                return placeType == ByteBuffer.class ? ByteBuffer.wrap(bytes) : bytes;
            }
            case "records": {
                byte[] bytes = {(byte) (value >> 16), (byte) (value >> 8), (byte) value};
                return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
            }
            default: throw new IllegalArgumentException(type);
        }
    }
}
