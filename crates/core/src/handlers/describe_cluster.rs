//! DescribeCluster, versions 0 to 2 (KIP-700). 1: KIP-919, endpoint types. 2: KIP-1073, fenced
//! brokers.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};

use super::authorized::{NOT_ASKED, cluster_operations};
use crate::access::Caller;
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: DescribeClusterRequest,
    reply: &mut ReplyBuffer,
) -> Handled {
    let image = node.image();
    let refusal = match body.endpoint_type {
        BROKERS => None,
        // KIP-919: a broker listener does not answer for controllers.
        CONTROLLERS => Some((
            ErrorCode::MismatchedEndpointType,
            "this is a broker's listener, not a controller's",
        )),
        _ => Some((
            ErrorCode::UnsupportedEndpointType,
            "endpoint type is neither 1 (brokers) nor 2 (controllers)",
        )),
    };
    let brokers = image
        .brokers
        .values()
        .filter(|broker| !broker.fenced || body.include_fenced_brokers);
    let brokers: Vec<DescribeClusterBroker<'_>> = brokers
        .filter_map(|broker| {
            let endpoint = broker.endpoint(&request.connection.listener_name)?;
            Some(DescribeClusterBroker {
                broker_id: broker.broker_id,
                host: &endpoint.host,
                port: i32::from(endpoint.port),
                rack: broker.rack.as_deref(),
                is_fenced: broker.fenced && request.api_version >= 2,
            })
        })
        .collect();
    let response = match refusal {
        Some((error, message)) => DescribeClusterResponse {
            error_code: error.code(),
            error_message: Some(message),
            ..Default::default()
        },
        None => DescribeClusterResponse {
            cluster_id: node.cluster_id(),
            controller_id: node.config().node_id,
            brokers,
            cluster_authorized_operations: if body.include_cluster_authorized_operations {
                cluster_operations(&caller)
            } else {
                NOT_ASKED
            },
            ..Default::default()
        },
    };
    response.encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}
