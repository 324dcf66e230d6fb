// A pipeline over many volumes, one task a shard, then one report of all:
//
//   nextflow run scripts/cluster/main.nf --spec configs/demo.json --inputs sample_data --out results --shards 4
//
// The shards write into --out themselves, so that one that was stopped goes on where it was. Items that fail do not
// fail their shard: the merge fails and names them. Run it again without -resume to try them again; what is finished
// stays. For GPUs add --device cuda:0, and what the cluster wants to nextflow.config, on Slurm
// process { withName: RUN_SHARD { clusterOptions = '--gres=gpu:1' } }.
nextflow.enable.dsl = 2

params.spec = 'configs/demo.json'
params.inputs = 'sample_data'  // files and folders, separated by spaces
params.out = 'results'
params.shards = 4
params.threads = 4
params.memory = '8 GB'
params.device = 'cpu'
params.volpipe = 'volpipe'
params.options = ''  // more of volpipe run

process RUN_SHARD {
  cpus params.threads
  memory params.memory
  errorStrategy { task.exitStatus in [130, 137, 143] ? 'retry' : 'finish' }
  maxRetries 20

  input:
  val index

  output:
  path 'report.json'

  script:
  """
  cd '${launchDir}'
  '${params.volpipe}' run '${params.spec}' ${params.inputs} -o '${params.out}' --shard ${index}/${params.shards} \
    --resume --threads ${task.cpus} --device ${params.device} --report "\$OLDPWD/report.json" ${params.options} \
    || [ \$? = 1 ]
  """
}

process MERGE_REPORTS {
  input:
  path 'shard*.json'

  script:
  """
  cd '${launchDir}'
  '${params.volpipe}' report merge "\$OLDPWD"/shard*.json -o '${params.out}/volpipe-report.json'
  """
}

workflow {
  MERGE_REPORTS(RUN_SHARD(channel.of(1..params.shards)).collect())
}
