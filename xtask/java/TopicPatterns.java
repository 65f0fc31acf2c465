import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * Judges regular expressions as Apache Kafka's group coordinator does (KIP-848): compiled by RE2/J, matched against whole
 * names.
 *
 * Input: a line of tab-separated names, then an expression on each line. Output: a line for each expression: `refused` and
 * the reason, or `accepted` and a digit for each name, 1 where it matches.
 */
public final class TopicPatterns {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        List<String> names = List.of(in.readLine().split("\t"));
        for (String expression = in.readLine(); expression != null; expression = in.readLine()) {
            out.println(judge(expression, names));
        }
        out.flush();
    }

    static String judge(String expression, List<String> names) {
        try {
            Pattern pattern = Pattern.compile(expression);
            StringBuilder matches = new StringBuilder("accepted\t");
            names.forEach(name -> matches.append(pattern.matcher(name).matches() ? '1' : '0'));
            return matches.toString();
        } catch (PatternSyntaxException error) {
            return "refused\t" + error.getDescription();
        }
    }
}
