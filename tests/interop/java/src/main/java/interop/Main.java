package interop;

import java.util.Arrays;
import java.util.List;

/** Runs one phase of the suite; prints `CASE<tab>name<tab>ok|fail<tab>detail` for each case. */
public final class Main {
    public static void main(String[] args) throws Exception {
        if (args.length < 2) {
            System.err.println("usage: Main write|read|cases|drain|keep|check|member|transactions|transaction-cases|login|secured|names|push|use|facts|visit|commit-everywhere|go-on|crash-load|crash-transactions|leave|resume|follow|verify|transact|transacted|word-count-topics|word-count-lines|word-count|word-count-check|word-count-times BOOTSTRAP ...");
            System.exit(2);
        }
        String bootstrap = args[1];
        List<String> rest = Arrays.asList(args).subList(2, args.length);
        if (args[0].equals("load")) {
            Load.run(bootstrap, rest.get(0));
            return;
        }
        if (args[0].equals("issuer")) {
            Issuer.run(Integer.parseInt(bootstrap), rest.get(0));
            return;
        }
        if (args[0].equals("word-count")) {
            WordCount.count(bootstrap, rest);
            return;
        }
        Suite suite = new Suite(bootstrap);
        if (args[0].equals("word-count-times")) {
            try {
                WordCount.measure(suite, rest);
                System.exit(0);
            } catch (Throwable error) {
                // The application's threads would go on.
                error.printStackTrace();
                System.exit(1);
            }
        }
        switch (args[0]) {
            case "write" -> Records.write(suite);
            case "read" -> Records.read(suite, rest);
            case "cases" -> {
                DataCases.run(suite);
                AdminCases.run(suite);
                GroupCases.run(suite);
            }
            case "drain" -> suite.run("drain", () -> Drain.run(suite, rest));
            case "transactions" -> Transactions.write(suite, rest.get(0));
            case "transaction-cases" -> TransactionCases.run(suite);
            case "use" -> Directories.use(suite, rest);
            case "facts" -> Directories.facts(suite, rest.get(0), rest);
            case "visit" -> Directories.visit(suite, rest);
            case "commit-everywhere" -> Directories.commitEverywhere(suite);
            case "go-on" -> Directories.goOn(suite, rest);
            case "login" -> new Login(suite, rest).run();
            case "secured" -> Secured.run(suite, rest.get(0));
            case "names" -> new Names(suite, rest).run();
            case "push" -> Push.run(suite, Integer.parseInt(rest.get(0)));
            case "keep" -> Takeover.keep(suite, rest.get(0));
            case "check" -> Takeover.check(suite, rest.get(0));
            case "member" -> GroupMember.run(suite, rest);
            case "crash-load" -> Crash.load(suite, rest.get(0), Integer.parseInt(rest.get(1)), rest.get(2));
            case "crash-transactions" ->
                    CrashTransactions.load(suite, rest.get(0), Integer.parseInt(rest.get(1)), rest.get(2));
            case "leave" -> Growth.leave(suite, rest.get(0), rest.get(1), Integer.parseInt(rest.get(2)));
            case "resume" -> Growth.resume(suite, rest.get(0), rest.get(1), Integer.parseInt(rest.get(2)));
            case "follow" -> Growth.follow(suite, rest.get(0), rest.get(1), Integer.parseInt(rest.get(2)));
            case "verify" -> Growth.verify(suite, rest.get(0), Integer.parseInt(rest.get(1)), rest.get(2));
            case "transact" -> Growth.transact(suite, rest.get(0), Integer.parseInt(rest.get(1)));
            case "transacted" -> Growth.transacted(suite, rest.get(0), Integer.parseInt(rest.get(1)));
            case "word-count-topics" -> WordCount.create(suite, rest);
            case "word-count-lines" -> WordCount.write(suite, rest.get(0));
            case "word-count-check" -> WordCount.verify(suite, rest.get(0), rest.get(1), Integer.parseInt(rest.get(2)));
            default -> throw new IllegalArgumentException("unknown phase " + args[0]);
        }
        System.out.flush();
        System.exit(suite.failures() == 0 ? 0 : 1);
    }
}
